"""Messages as Hypothesis draws them, for every test of the wire."""

from __future__ import annotations

from hypothesis import strategies as st

from tenure.gossip import messages as m

u32 = st.integers(0, 0xFFFFFFFF)
names = st.text(min_size=1, max_size=30).filter(lambda text: len(text.encode()) <= m.MAX_NAME_BYTES)
hosts = st.one_of(st.ip_addresses(v=4).map(str), st.just("::1"), st.just("fd00::17"))
addresses = st.tuples(hosts, st.integers(1, 65_535))
maybe_source = st.one_of(st.none(), addresses)
metas = st.binary(max_size=m.MAX_META_BYTES)
versions = st.binary(min_size=6, max_size=6)

pings = st.builds(m.Ping, u32, names, st.just(("10.0.0.1", 7946)), names, st.binary(max_size=64))
acks = st.builds(m.Ack, u32, st.binary(max_size=100), st.binary(max_size=64), st.integers(0, 2**63))
indirect_pings = st.builds(m.IndirectPing, u32, addresses, names, st.booleans(), addresses, names)
nacks = st.builds(m.PingNack, u32)
suspects = st.builds(m.Suspect, u32, names, names)
deads = st.builds(m.Dead, u32, names, names)
alives = st.builds(m.Alive, u32, names, addresses, metas, versions)
users = st.builds(m.User, st.binary(max_size=200))
refusals = st.builds(m.StreamRefusal, st.text(max_size=80))
messages = st.one_of(pings, acks, indirect_pings, nacks, suspects, deads, alives, users, refusals)
node_states = st.builds(m.NodeState, names, addresses, u32, st.sampled_from(m.MemberState), metas, versions)
push_pulls = st.builds(m.PushPull, st.lists(node_states, max_size=8).map(tuple), st.booleans(), st.binary(max_size=300))
