"""Makes a mismatch small."""

import dataclasses

from differential import play, scripts, world

# How often a smaller script is tried again, since what it meets on the servers differs from run to run.
TRIES, TRIALS_MAX = 2, 120


def smallest(wrong, cluster, keeper, pooler):
    """The mismatch of the shortest script found that is still answered wrongly with noisy neighbours."""
    trials = _Trials(cluster, keeper, pooler)
    best = wrong
    cut = dataclasses.replace(wrong.script, steps=wrong.script.steps[: wrong.step + 1])
    again = trials.wrong(cut)
    if again is None:
        return wrong
    best, script = again, dataclasses.replace(cut, steps=cut.steps[: again.step + 1])
    size = max(len(script.steps) // 2, 1)
    while size >= 1 and trials.left > 0:
        at = 0
        while at < len(script.steps) and trials.left > 0:
            shorter = dataclasses.replace(script, steps=script.steps[:at] + script.steps[at + size :])
            again = trials.wrong(shorter) if shorter.steps else None
            if again is None:
                at += size
            else:
                best, script = again, dataclasses.replace(shorter, steps=shorter.steps[: again.step + 1])
        size //= 2
    return best


class _Trials:
    def __init__(self, cluster, keeper, pooler):
        self.cluster, self.keeper, self.pooler = cluster, keeper, pooler
        self.left = TRIALS_MAX

    def wrong(self, script):
        """The mismatch of a script that is played with neighbours, or None."""
        for attempt in range(TRIES):
            self.left -= 1
            self.keeper.fresh(script.who, world.TRUTH)
            expected = {script.name: play.truth((self.cluster.host, self.cluster.port), script)}
            neighbours = [scripts.script(f"{script.name}/{attempt}", n, 80 + n) for n in range(2)]
            neighbours = [dataclasses.replace(one, user=script.user) for one in neighbours]
            for one in neighbours:
                self.keeper.fresh(one.who, world.POOLED)
            try:
                found = play.play((self.pooler.host, self.pooler.port), [[script]], expected, self.keeper.fresh,
                                  neighbours)
            except play.Stuck:
                continue
            if found:
                return found
        return None
