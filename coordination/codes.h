/* What ZooKeeper's return codes mean for us: the one classifier. Pure, any thread.
 *
 * The rule behind it: only an answer of a server says that something happened or did not. Everything that a
 * lost, stalled, confused or closing link produces leaves the outcome open, and the library has seven names
 * for that. A code nobody has heard of is taken for one of them: the safe side.
 */
#ifndef BROOK_COORDINATION_CODES_H
#define BROOK_COORDINATION_CODES_H

enum code_class {
    CODE_DONE,      /* carried out */
    CODE_ANSWERED,  /* a server refused it: no node, exists, bad version, not empty: certainly not carried out
                     */
    CODE_RETRY,     /* certainly not carried out, and worth sending again */
    CODE_UNKNOWN,   /* carried out or not: sync, then read */
    CODE_STEP_DOWN, /* unknown like the above, and the session (or the handle) is gone */
    CODE_OURS       /* our request is wrong, or we lack the right: fix it, do not repeat it */
};

/* Classify what a completion reported (or what an op of a multi holds). */
enum code_class code_classify(int rc);
/* The same as one of our error codes: 0 or -BROOK_E_*. */
int code_to_error(int rc);
/* Classify what an asynchronous call of the library returned instead of accepting a request: nothing was
 * sent, so CODE_DONE, CODE_RETRY or CODE_OURS. */
enum code_class code_classify_refusal(int rc);
#endif
