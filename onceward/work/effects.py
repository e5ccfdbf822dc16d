"""Effects of a job's commit, recorded in the job for later queries."""

from collections.abc import Mapping, Sequence

from onceward import keys, limits
from onceward.json_values import encode
from onceward.keys import Key
from onceward.schedule import Effect
from onceward.work.steps import Step

# Records that belong to another effect, or that are of no use for queries.
_BESIDE = {
    *("due", "ready", "line", "order", "limit", "parked", "permit", "rate", "failed", "inbox"),
    *("lock", "ask", "fence", "gate", "rooms", "roomsnap"),
}


def effects_of(steps: Mapping[str, Step], written: Sequence[Key]) -> list[Effect]:
    """The first few effects of a job: its steps, and the records that its transaction wrote."""
    found = dict.fromkeys(
        Effect("step", name, "", step.started_ms, step.ended_ms)
        for name, step in steps.items()
        if not step.read
    )
    for partition, sort in written:
        effect = _effect(partition, sort)
        if effect is not None:
            found[effect] = None
    kept: list[Effect] = []
    left_bytes = limits.EFFECTS_BYTES_MAX
    for effect in list(found)[: limits.EFFECTS_MAX]:
        left_bytes -= len(encode(effect, ("job", "effects")))
        if left_bytes < 0:
            break
        kept.append(effect)
    return kept


def _effect(partition: str, sort: str) -> Effect | None:
    kind = keys.kind_of(partition)
    if kind in _BESIDE:
        return None
    if kind == "job":
        return Effect("job", sort.removesuffix("#job")) if sort.endswith("#job") else None
    if kind == "timer":
        caller, id_ = keys.split(sort)
        return Effect("timer", id_, caller)
    if kind in ("room", "roomlog"):
        return Effect("room", keys.split(partition)[1])
    return Effect("record", " ".join(keys.shown_key((partition, sort))))
