-- What releases after the first added. Each statement is made to run again: a file of the first release gets it when it is opened, and the
-- first release goes on to use that file. The triggers do what its statements do not know of.

-- The finished steps of a key's work, in the order in which they were recorded. They end with the key.
CREATE TABLE IF NOT EXISTS message_step (
  mailbox TEXT    NOT NULL,
  key     TEXT    NOT NULL,
  number  INTEGER NOT NULL,
  record  BLOB    NOT NULL,
  PRIMARY KEY (mailbox, key, number)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS message_step_pruned AFTER DELETE ON message_key BEGIN
  DELETE FROM message_step WHERE mailbox = OLD.mailbox AND key = OLD.key;
END;
CREATE TRIGGER IF NOT EXISTS message_step_revoked AFTER UPDATE OF revoked ON message_key WHEN NEW.revoked = 1 BEGIN
  DELETE FROM message_step WHERE mailbox = NEW.mailbox AND key = NEW.key;
END;
-- A key that ended a day ago (in microseconds) is forgotten, also where its row was not pruned yet: the next message begins anew.
CREATE TRIGGER IF NOT EXISTS message_step_forgotten AFTER UPDATE OF message ON message_key
WHEN OLD.ended_at IS NOT NULL AND NEW.message IS NOT NULL BEGIN
  DELETE FROM message_step WHERE mailbox = NEW.mailbox AND key = NEW.key
    AND OLD.ended_at <= (SELECT enqueued_at FROM message WHERE seq = NEW.message) - 86400000000;
END;
