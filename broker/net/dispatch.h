/* The one table: body of a request -> its handler. */
#ifndef BROOK_NET_DISPATCH_H
#define BROOK_NET_DISPATCH_H

#include "broker/net/connection.h"
#include "broker/net/input.h"

/* Unpack the frame and carry it out, or refuse it. Takes frame->slab. */
void dispatch_frame(struct connection *c, struct input_frame *frame);
#endif
