"""How the protocol's numbers grow with the pool: each formula of memberlist and of the Lifeguard paper, on its own."""

from __future__ import annotations

import math


def suspicion_min_s(mult: int, nodes: int, interval_s: float) -> float:
    """How long a suspicion lasts that enough others confirmed."""
    return mult * max(1.0, math.log10(max(1, nodes))) * interval_s


def confirmations_wanted(mult: int, nodes: int) -> int:
    """How many others must confirm a suspicion for it to last no longer than it must; 0 when there are too few."""
    wanted = mult - 2
    return 0 if wanted < 1 or nodes - 2 < wanted else wanted


def suspicion_timeout_s(confirmed: int, wanted: int, min_s: float, max_s: float) -> float:
    """From the longest to the shortest, falling as the logarithm of the confirmations (Lifeguard, section IV-B)."""
    if wanted < 1:
        return min_s
    share = math.log(confirmed + 1) / math.log(wanted + 1)
    return max(min_s, max_s - (max_s - min_s) * share)


def retransmit_limit(mult: int, nodes: int) -> int:
    """How often one node passes a rumour on."""
    return mult * math.ceil(math.log10(nodes + 1))


def push_pull_scale(nodes: int) -> int:
    """How much rarer a node exchanges everything it knows: the work of all together stays bounded above 32 nodes."""
    return 1 if nodes <= 32 else math.ceil(math.log2(nodes) - 5) + 1
