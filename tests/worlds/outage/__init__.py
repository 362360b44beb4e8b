"""A fleet of agents that wait for one provider, which goes down: the real rules of leader and supervisor, told the time."""
