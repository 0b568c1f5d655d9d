/* brookd's command line. */
#ifndef BROOK_BROKER_COMMAND_LINE_H
#define BROOK_BROKER_COMMAND_LINE_H

/* Do what the arguments say: run the broker, check or print the settings, help. Returns the exit status: 0; 1
 * when the broker could not run; 2 for a bad command line or configuration. */
int command_line_run(int argc, char **argv);
#endif
