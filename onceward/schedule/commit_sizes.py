"""The number of writes of each transition of a job, so that several can share a commit."""

# The maximum number of writes and checked reads of each transition:
# - place a job: its entry, and the gate of its limit key;
# - promote: delete the entry, write the job and place it;
# - claim: delete its entry, write the job, add an entry in due, and a permit in limited queues. All
#   claims of a commit share the write for the rate;
# - end an attempt: its entry in due, the lease, the job and its permit; the gate, and two jobs that
#   pass it with their old and new entries; then place a retry, or read its steps, list the job as
#   failed, send a job to the failure queue and one about a webhook call, and place the next job of
#   its order key;
# - complete, usually: the entry in due, the job, its steps, its permit and its dedupe record; with
#   an order key, also the next job of that key; a job with a parent, children, events
#   or output, also its events, its entry as a child, and entries in due for its parent, itself and
#   its output.
_PLACE_WRITES = 2
PROMOTE_WRITES = 2 + _PLACE_WRITES
CLAIM_WRITES = 3
CLAIM_WRITES_SHARED = 1
_NOTICE_WRITES = 2
_NEXT_WRITES = 3 + _PLACE_WRITES
FAMILY_WRITES = 5
COMPLETE_WRITES = 5
COMPLETE_ORDERED_WRITES = COMPLETE_WRITES + _NEXT_WRITES
EXPIRE_WRITES = 1 + 4 + (1 + 2 * 3) + 2 + 2 * _NOTICE_WRITES + FAMILY_WRITES + _NEXT_WRITES
