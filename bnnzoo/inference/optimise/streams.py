"""Random numbers of a training run: one stream that its members share, and streams of each member's own."""

from collections.abc import Sequence

import numpy as np
import torch

__all__ = ["MemberStreams"]


class MemberStreams:
    """Random streams of some of the members of a fit.

    A member's own streams depend on the seed and on its number alone, so that its result does not depend on which members
    are trained beside it.

    Parameters
    ----------
    seed : int
    members : sequence of int
        Numbers of these members among all members of the fit.

    Examples
    --------
    >>> together, alone = MemberStreams(7, range(3)), MemberStreams(7, [2])
    >>> a, b = together.own("order")[2], alone.own("order")[0]
    >>> bool(torch.equal(torch.rand(4, generator=a), torch.rand(4, generator=b)))
    True
    """

    def __init__(self, seed: int, members: Sequence[int]) -> None:
        self.seed, self.members = seed, tuple(members)
        self.shared = torch.Generator().manual_seed(seed)

    def own(self, purpose: str) -> list[torch.Generator]:
        """Return one new stream for each member, independent of those for any other purpose."""
        keys = [(self.seed, member, *purpose.encode()) for member in self.members]
        words = [np.random.SeedSequence(key).generate_state(1, np.uint64)[0] for key in keys]
        return [torch.Generator().manual_seed(int(word >> np.uint64(1))) for word in words]
