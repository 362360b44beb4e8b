"""Every statement of the engine: what it does, and the index that it uses (`pk` is the table's own key).

Places are plain `?`: early releases of Python 3.12 take `?1` for a name and warn at each call.
`tests/engines/sqlite/test_statements.py` asks SQLite for the plan of each and fails when one scans a table that can grow.
"""

from __future__ import annotations

# -- time ----------------------------------------------------------------------------------------------------------------
# The anchor and the boot that it is for. pk.
READ_TIMELINE = "SELECT boot_id, anchor FROM timeline WHERE id = 1"
# A new boot, or a new file. pk.
SET_TIMELINE = "INSERT OR REPLACE INTO timeline (id, boot_id, anchor, latest) VALUES (1, ?, ?, ?)"
# Remember how far time has come. pk.
TOUCH_TIMELINE = "UPDATE timeline SET latest = max(latest, ?) WHERE id = 1"
# Once per boot; each reads a whole table.
LATEST_TIMES = (
    "SELECT max(latest) FROM timeline",
    "SELECT max(enqueued_at) FROM message",
    "SELECT max(ended_at) FROM message_key WHERE ended_at IS NOT NULL",
    "SELECT max(died_at) FROM dead_letter",
    "SELECT max(at) FROM journal_entry",
)
# Once per boot: whoever held them is gone. They go back to the place in the queue that they had, and are suspect by their state.
FREE_ALL_LEASES = "UPDATE message SET visible_at = enqueued_at WHERE state <> 0"  # whole table
# Once per boot: whoever led is gone.
END_ALL_TERMS = "UPDATE election SET expires_at = min(expires_at, ?)"  # whole table, a handful of rows

# -- messages ------------------------------------------------------------------------------------------------------------
# Queue one. Writes message_next.
INSERT_MESSAGE = """
INSERT INTO message (mailbox, visible_at, state, claims, deliveries, forgiven, generation, failure, enqueued_at, id, key,
                     reply_to, checkpoint, body)
VALUES (?, ?, 0, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# Queue one that has nothing but a body; the time comes last, twice. Half as long to bind as the one above. Writes message_next.
INSERT_PLAIN = """
INSERT INTO message (mailbox, id, body, visible_at, enqueued_at, state, claims, deliveries, forgiven, generation, failure)
VALUES (?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0)"""


# Messages as a claim reads them. Where a claim ran out (state <> 0) the message is suspect; a provisional one keeps its number, and is
# forgiven.
_claimable = """
SELECT seq, id, claims, deliveries + (state = 1), forgiven + (state = 1), generation, failure, enqueued_at, key, reply_to,
       checkpoint, body, state <> 0, mailbox
FROM message WHERE {which}"""
# The next ones to claim, in order. message_next, so the cost does not depend on the length of the queue.
SELECT_CLAIMABLE = _claimable.replace("{which}", "mailbox = ? AND visible_at <= ? ORDER BY visible_at, seq LIMIT ?")
# The same of one message. pk.
SELECT_CLAIMABLE_ONE = _claimable.replace("{which}", "seq = ?")
# Of each of these mailboxes that is not empty: when its first message is visible. message_next, one seek each; the names are a JSON array.
SELECT_HEADS = """
SELECT value, head FROM
  (SELECT value, (SELECT visible_at FROM message WHERE mailbox = value ORDER BY visible_at LIMIT 1) AS head FROM json_each(?))
WHERE head IS NOT NULL"""
# The places of the next ones of a mailbox. message_next alone: no body is read.
SELECT_PLACES = (
    "SELECT visible_at, seq FROM message WHERE mailbox = ? AND visible_at <= ? ORDER BY visible_at, seq LIMIT ?"
)
# Lease one; `state` on the right is still that of the claim that ran out. pk.
CLAIM = """
UPDATE message
SET visible_at = ?, state = ?, claims = claims + 1, deliveries = deliveries + (state = 1) + ?, forgiven = forgiven + (state = 1)
WHERE seq = ?"""
# When the next message of these mailboxes can be claimed. message_next, one seek each; the names are a JSON array.
NEXT_VISIBLE_AT = """
SELECT min((SELECT visible_at FROM message WHERE mailbox = value ORDER BY visible_at LIMIT 1)) FROM json_each(?)"""

# A receipt is (seq, id, claims), and is valid while the message is claimed and its lease runs. All of these by pk.
DELETE_OURS = """
DELETE FROM message WHERE seq = ? AND id = ? AND claims = ? AND state <> 0 AND visible_at > ?"""
DELETE_OURS_KEYED = """
DELETE FROM message WHERE seq = ? AND id = ? AND claims = ? AND state <> 0 AND visible_at > ?
RETURNING checkpoint"""
SELECT_OURS = """
SELECT deliveries, forgiven, state FROM message
WHERE seq = ? AND id = ? AND claims = ? AND state <> 0 AND visible_at > ?"""
# Give back after a delivery that counts.
NACK_OURS = """
UPDATE message SET state = 0, visible_at = ?, deliveries = deliveries + (state = 1)
WHERE seq = ? AND id = ? AND claims = ? AND state <> 0 AND visible_at > ?"""
# Give back, at the place in the queue that it had. Extended work had started: its number stays used, and is forgiven.
RELEASE_OURS = """
UPDATE message
SET state = 0, visible_at = enqueued_at, deliveries = deliveries - (state = 2), forgiven = forgiven + (state = 3)
WHERE seq = ? AND id = ? AND claims = ? AND state <> 0 AND visible_at > ?"""
# Hold it longer, never shorter; the first one starts a provisional claim.
EXTEND_OURS = """
UPDATE message SET visible_at = max(visible_at, ?), deliveries = deliveries + (state = 1), state = 3
WHERE seq = ? AND id = ? AND claims = ? AND state <> 0 AND visible_at > ?"""
EXTEND_OURS_WITH_CHECKPOINT = """
UPDATE message
SET visible_at = max(visible_at, ?), deliveries = deliveries + (state = 1), state = 3, checkpoint = ?
WHERE seq = ? AND id = ? AND claims = ? AND state <> 0 AND visible_at > ?"""
# Append to the steps of a key. pk.
INSERT_STEP = """
INSERT INTO message_step (mailbox, key, number, record)
SELECT ?, ?, coalesce((SELECT max(number) FROM message_step WHERE mailbox = ? AND key = ?), 0) + 1, ?"""
SELECT_STEPS = "SELECT record FROM message_step WHERE mailbox = ? AND key = ? ORDER BY number"
# Why a receipt is not valid. pk.
SELECT_FOR_REASON = "SELECT claims, state, visible_at FROM message WHERE seq = ? AND id = ?"
# Without regard to receipts: replaced, revoked, dead. pk.
DELETE_MESSAGE = "DELETE FROM message WHERE seq = ?"
# A message of a key, for withdrawing: whether it is leased, and its checkpoint. pk.
SELECT_WITHDRAWN = "SELECT state <> 0 AND visible_at > ?, checkpoint FROM message WHERE seq = ?"
SELECT_CHECKPOINT = "SELECT checkpoint FROM message WHERE seq = ?"
# All of one mailbox. message_next.
PURGE_MESSAGES = "DELETE FROM message WHERE mailbox = ?"
# Counting reads each entry of the mailbox: the ready ones in message_next alone, the others also in the table.
COUNT_READY = "SELECT count(*) FROM message WHERE mailbox = ? AND visible_at <= ?"
COUNT_HELD = "SELECT count(*), sum(state <> 0) FROM message WHERE mailbox = ? AND visible_at > ?"

# -- keys ----------------------------------------------------------------------------------------------------------------
# What is known of a key, unless it ended too long ago. pk.
SELECT_KEY = """
SELECT generation, revoked, message, checkpoint FROM message_key
WHERE mailbox = ? AND key = ? AND (ended_at IS NULL OR ended_at > ?)"""
# A key's live message is this one. pk; message_key_ended when it had ended.
SET_KEY = """
INSERT INTO message_key (mailbox, key, generation, revoked, message, ended_at) VALUES (?, ?, ?, 0, ?, NULL)
ON CONFLICT (mailbox, key) DO UPDATE SET
  generation = excluded.generation, revoked = 0, message = excluded.message, ended_at = NULL, checkpoint = NULL"""
# Its message has ended; it is remembered from here. pk.
END_KEY = """
UPDATE message_key SET message = NULL, ended_at = ?, checkpoint = ?
WHERE mailbox = ? AND key = ? AND generation = ?"""
# No generation is accepted again. pk.
REVOKE_KEY = """
INSERT INTO message_key (mailbox, key, generation, revoked, message, ended_at) VALUES (?, ?, -1, 1, NULL, ?)
ON CONFLICT (mailbox, key) DO UPDATE SET revoked = 1, message = NULL, ended_at = excluded.ended_at, checkpoint = NULL"""
# A purge ends all keys of a mailbox. pk, every key of that mailbox.
END_ALL_KEYS = """
UPDATE message_key
SET checkpoint = (SELECT checkpoint FROM message WHERE seq = message_key.message), message = NULL, ended_at = ?
WHERE mailbox = ? AND ended_at IS NULL"""
# Forget keys long ended. message_key_ended.
PRUNE_KEYS = """
DELETE FROM message_key WHERE (mailbox, key) IN
  (SELECT mailbox, key FROM message_key WHERE ended_at IS NOT NULL AND ended_at <= ? ORDER BY ended_at LIMIT ?)"""

# -- dead letters --------------------------------------------------------------------------------------------------------
# Copy a message there, as it is. pk.
BURY = """
INSERT INTO dead_letter (mailbox, id, cause, reason, died_at, enqueued_at, deliveries, generation, failure, key, reply_to,
                         checkpoint, body)
SELECT mailbox, id, ?, ?, ?, enqueued_at, ?, generation, failure, key, reply_to, checkpoint, body
FROM message WHERE seq = ?
RETURNING id, key, generation, reply_to, checkpoint"""
# A page, oldest first. dead_letter_order.
LIST_DEAD = """
SELECT id, body, cause, reason, died_at / 1e6, enqueued_at / 1e6, deliveries, key, generation, reply_to, checkpoint
FROM dead_letter WHERE mailbox = ? AND seq > ? ORDER BY seq LIMIT ?"""
# Where a page begins; one dead letter whole; remove one. dead_letter_id.
DEAD_POSITION = "SELECT seq FROM dead_letter WHERE mailbox = ? AND id = ?"
SELECT_DEAD = """
SELECT id, body, cause, reason, died_at / 1e6, enqueued_at / 1e6, deliveries, key, generation, reply_to, checkpoint, failure
FROM dead_letter WHERE mailbox = ? AND id = ?"""
DELETE_DEAD = "DELETE FROM dead_letter WHERE mailbox = ? AND id = ?"
# dead_letter_order, each of the mailbox.
COUNT_DEAD = "SELECT count(*) FROM dead_letter WHERE mailbox = ?"
PURGE_DEAD = "DELETE FROM dead_letter WHERE mailbox = ?"

# -- journals ------------------------------------------------------------------------------------------------------------
# Make the head row when it is missing. The unique index on the name, as all statements by name.
CREATE_JOURNAL = """
INSERT INTO journal (name, seq, epoch, first, snapshot_seq, snapshot_epoch) VALUES (?, 0, 0, 1, 0, 0)
ON CONFLICT (name) DO NOTHING"""
SELECT_JOURNAL = "SELECT id, seq, epoch, first, snapshot_seq, snapshot_epoch FROM journal WHERE name = ?"
# The compare-and-swap that an append is.
ADVANCE_HEAD = "UPDATE journal SET seq = seq + 1, epoch = ? WHERE name = ? AND seq = ? AND epoch <= ? RETURNING id, seq"
INSERT_ENTRY = "INSERT INTO journal_entry (journal, seq, epoch, at, append_id, events) VALUES (?, ?, ?, ?, ?, ?)"
# A page. journal_entry_order.
READ_ENTRIES = """
SELECT seq, epoch, append_id, at, events FROM journal_entry WHERE journal = ? AND seq > ? ORDER BY seq LIMIT ?"""
# Forget the beginning. journal_entry_order, then pk.
TRUNCATE_ENTRIES = "DELETE FROM journal_entry WHERE journal = ? AND seq <= ?"
SET_FIRST = "UPDATE journal SET first = max(first, ?) WHERE id = ?"
# Keep a snapshot; what it replaces is gone. pk.
SET_SNAPSHOT = "INSERT OR REPLACE INTO journal_snapshot (journal, state) VALUES (?, ?)"
SET_SNAPSHOT_SEQ = "UPDATE journal SET snapshot_seq = ?, snapshot_epoch = ? WHERE id = ?"
SELECT_SNAPSHOT = """
SELECT j.snapshot_seq, j.snapshot_epoch, s.state FROM journal j JOIN journal_snapshot s ON s.journal = j.id
WHERE j.name = ?"""

# -- elections: all by pk ------------------------------------------------------------------------------------------------
SELECT_ELECTION = "SELECT epoch, candidate, expires_at FROM election WHERE name = ?"
SET_LEADER = "INSERT OR REPLACE INTO election (name, epoch, candidate, expires_at) VALUES (?, ?, ?, ?)"
RENEW_TERM = "UPDATE election SET expires_at = ? WHERE name = ? AND epoch = ? AND candidate = ? AND expires_at > ?"
END_TERM = "UPDATE election SET expires_at = min(expires_at, ?) WHERE name = ? AND epoch = ? AND candidate = ?"

# -- stores --------------------------------------------------------------------------------------------------------------
# What fence has written a key, and whether it has a value. stored_key, as all statements by key.
SELECT_FENCE = "SELECT generation, delivery, value IS NOT NULL, expires_at FROM stored WHERE store = ? AND key = ?"
SET_VALUE = """
INSERT INTO stored (store, key, generation, delivery, expires_at, value) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (store, key) DO UPDATE SET
  generation = excluded.generation, delivery = excluded.delivery, expires_at = excluded.expires_at, value = excluded.value"""
# As above, unless a higher fence has written the key.
SET_FENCED = f"""{SET_VALUE}
WHERE stored.generation IS NULL OR (stored.generation, stored.delivery) <= (excluded.generation, excluded.delivery)"""
# Without a fence: one that has written the key still counts.
SET_UNFENCED = """
INSERT INTO stored (store, key, expires_at, value) VALUES (?, ?, ?, ?)
ON CONFLICT (store, key) DO UPDATE SET expires_at = excluded.expires_at, value = excluded.value"""
SELECT_VALUE = """
SELECT value FROM stored
WHERE store = ? AND key = ? AND value IS NOT NULL AND (expires_at IS NULL OR expires_at > ?)"""
DELETE_VALUE = "DELETE FROM stored WHERE store = ? AND key = ?"
# A page of keys. stored_key; the values are not read.
LIST_KEYS = """
SELECT key FROM stored
WHERE store = ? AND key > ? AND key >= ? AND key < ? AND value IS NOT NULL AND (expires_at IS NULL OR expires_at > ?)
ORDER BY key LIMIT ?"""
# A page of keys and values, upwards or downwards. stored_key.
SCAN_UP = LIST_KEYS.replace("SELECT key", "SELECT key, value")
SCAN_DOWN = SCAN_UP.replace("key > ?", "key < ?").replace("ORDER BY key", "ORDER BY key DESC")
# Values that ran out become tombstones where they were fenced, and go where they were not. stored_expiry.
PRUNE_STORED = """
DELETE FROM stored WHERE seq IN
  (SELECT seq FROM stored WHERE expires_at IS NOT NULL AND expires_at <= ? AND (value IS NULL OR generation IS NULL)
   ORDER BY expires_at LIMIT ?)"""
BURY_STORED = """
UPDATE stored SET value = NULL, expires_at = expires_at + ? WHERE seq IN
  (SELECT seq FROM stored WHERE expires_at IS NOT NULL AND expires_at <= ? AND value IS NOT NULL AND generation IS NOT NULL
   ORDER BY expires_at LIMIT ?)"""
