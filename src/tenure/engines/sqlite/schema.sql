-- The tables of one Tenure file. Times are whole microseconds of the engine's time. Changing this file raises
-- SCHEMA_VERSION in schema.py and needs a step from the version before.

-- One row: engine time = boot time + anchor, for the boot that it names. `latest` is a time that was surely reached.
CREATE TABLE timeline (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  boot_id TEXT    NOT NULL,
  anchor  INTEGER NOT NULL,
  latest  INTEGER NOT NULL
);

-- Live messages. Finished ones are deleted.
CREATE TABLE message (
  seq         INTEGER PRIMARY KEY,
  mailbox     TEXT    NOT NULL,
  visible_at  INTEGER NOT NULL,  -- claimable from here on; while leased, the end of the lease
  state       INTEGER NOT NULL,  -- 0 waiting, 1 claimed provisionally, 2 held, 3 started (was extended); 1 to 3 after visible_at: suspect
  claims      INTEGER NOT NULL,  -- receipts given out so far; only the newest one is valid
  deliveries  INTEGER NOT NULL,  -- numbers given out, without the one of a provisional claim
  forgiven    INTEGER NOT NULL,  -- deliveries before the last replay, handed over or never started: the threshold does not count them
  generation  INTEGER NOT NULL,
  failure     INTEGER NOT NULL,  -- 1: the body is a Failure, posted in place of a reply
  enqueued_at INTEGER NOT NULL,
  id          TEXT    NOT NULL,  -- random, so that a reused seq never revives an old receipt
  key         TEXT,
  reply_to    TEXT,
  checkpoint  BLOB,
  body        BLOB    NOT NULL
);
-- The rowid is the implicit last column, so this index gives (visible_at, seq) order: FIFO, and claims that do not depend
-- on how many messages are queued, leased or delayed.
CREATE INDEX message_next ON message (mailbox, visible_at);

-- What is known of each key: its newest generation, whether it was revoked, and its live message or when that ended.
CREATE TABLE message_key (
  mailbox    TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  generation INTEGER NOT NULL,
  revoked    INTEGER NOT NULL,
  message    INTEGER,            -- the seq of the live one
  ended_at   INTEGER,            -- NULL while it lives
  checkpoint BLOB,               -- of the one that ended, for the next generation
  PRIMARY KEY (mailbox, key)
) WITHOUT ROWID;
CREATE INDEX message_key_ended ON message_key (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE dead_letter (
  seq         INTEGER PRIMARY KEY AUTOINCREMENT,
  mailbox     TEXT    NOT NULL,
  id          TEXT    NOT NULL,
  cause       TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  died_at     INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  deliveries  INTEGER NOT NULL,
  generation  INTEGER NOT NULL,
  failure     INTEGER NOT NULL,
  key         TEXT,
  reply_to    TEXT,
  checkpoint  BLOB,
  body        BLOB    NOT NULL
);
CREATE INDEX dead_letter_order ON dead_letter (mailbox, seq);
CREATE UNIQUE INDEX dead_letter_id ON dead_letter (mailbox, id);

-- The head row of each journal: appends compare and swap it.
CREATE TABLE journal (
  id             INTEGER PRIMARY KEY,
  name           TEXT    NOT NULL UNIQUE,
  seq            INTEGER NOT NULL,
  epoch          INTEGER NOT NULL,
  first          INTEGER NOT NULL,  -- the lowest sequence that is kept
  snapshot_seq   INTEGER NOT NULL,  -- 0: none
  snapshot_epoch INTEGER NOT NULL
);
CREATE TABLE journal_entry (
  journal   INTEGER NOT NULL,
  seq       INTEGER NOT NULL,
  epoch     INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  append_id TEXT    NOT NULL,
  events    BLOB    NOT NULL  -- a msgpack array of byte strings
);
CREATE UNIQUE INDEX journal_entry_order ON journal_entry (journal, seq);
CREATE TABLE journal_snapshot (
  journal INTEGER PRIMARY KEY,
  state   BLOB    NOT NULL
);

CREATE TABLE election (
  name       TEXT    PRIMARY KEY,
  epoch      INTEGER NOT NULL,
  candidate  TEXT    NOT NULL,
  expires_at INTEGER NOT NULL
) WITHOUT ROWID;

-- A NULL value is a tombstone: the key was deleted or ran out, and its fence still counts.
CREATE TABLE stored (
  seq        INTEGER PRIMARY KEY,
  store      TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  generation INTEGER,            -- of the highest fence that has written; NULL: never fenced
  delivery   INTEGER,
  expires_at INTEGER,            -- of the value; of a tombstone, when it may be forgotten
  value      BLOB
);
CREATE UNIQUE INDEX stored_key ON stored (store, key);
CREATE INDEX stored_expiry ON stored (expires_at) WHERE expires_at IS NOT NULL;
