#include "coordination/codes.h"

#include "proto/base/err.h"

#include <zookeeper/zookeeper.h>

struct meaning {
    int rc;
    enum code_class class;
    int err;
};

static const struct meaning meanings[] = {
    {ZOK, CODE_DONE, 0},
    {ZNONODE, CODE_ANSWERED, -BROOK_E_NO_NODE},
    {ZNODEEXISTS, CODE_ANSWERED, -BROOK_E_NODE_EXISTS},
    {ZBADVERSION, CODE_ANSWERED, -BROOK_E_BAD_VERSION},
    {ZNOTEMPTY, CODE_ANSWERED, -BROOK_E_NOT_EMPTY},
    /* The server looked at the request and put it aside unapplied. */
    {ZSESSIONMOVED, CODE_RETRY, -BROOK_E_COORDINATION_LOST},
    {ZTHROTTLEDOP, CODE_RETRY, -BROOK_E_COORDINATION_LOST},
    {ZNOTREADONLY, CODE_RETRY, -BROOK_E_COORDINATION_LOST},
    {ZCONNECTIONLOSS, CODE_UNKNOWN, -BROOK_E_OUTCOME_UNKNOWN},
    {ZOPERATIONTIMEOUT, CODE_UNKNOWN, -BROOK_E_OUTCOME_UNKNOWN},
    {ZRUNTIMEINCONSISTENCY, CODE_UNKNOWN, -BROOK_E_OUTCOME_UNKNOWN},
    /* From a completion: a reply came and could not be read. */
    {ZMARSHALLINGERROR, CODE_UNKNOWN, -BROOK_E_OUTCOME_UNKNOWN},
    {ZCLOSING, CODE_UNKNOWN, -BROOK_E_OUTCOME_UNKNOWN},
    {ZSESSIONEXPIRED, CODE_STEP_DOWN, -BROOK_E_SESSION_EXPIRED},
    /* The library gives everything in flight this code when the server refuses the credentials. */
    {ZAUTHFAILED, CODE_STEP_DOWN, -BROOK_E_OUTCOME_UNKNOWN},
    {ZNOAUTH, CODE_OURS, -BROOK_E_ZOOKEEPER_AUTH},
    {ZINVALIDACL, CODE_OURS, -BROOK_E_ZOOKEEPER_AUTH},
    {ZBADARGUMENTS, CODE_OURS, -BROOK_E_INVALID},
    {ZNOCHILDRENFOREPHEMERALS, CODE_OURS, -BROOK_E_INVALID},
    {ZUNIMPLEMENTED, CODE_OURS, -BROOK_E_INVALID},
    {ZEPHEMERALONLOCALSESSION, CODE_OURS, -BROOK_E_INVALID},
};

static const struct meaning *find(int rc)
{
    static const struct meaning unheard_of = {0, CODE_UNKNOWN, -BROOK_E_OUTCOME_UNKNOWN};
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (meanings[i].rc == rc)
            return &meanings[i];
    return &unheard_of;
}

enum code_class code_classify(int rc)
{
    return find(rc)->class;
}

int code_to_error(int rc)
{
    return find(rc)->err;
}

enum code_class code_classify_refusal(int rc)
{
    if (rc == ZOK)
        return CODE_DONE;
    return rc == ZBADARGUMENTS || rc == ZUNIMPLEMENTED ? CODE_OURS : CODE_RETRY;
}
