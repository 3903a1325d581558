-- Queries that led to calls, added up from the events by whichever gateway learns (storage/sqlite_learning.py).
CREATE TABLE exemplars (
  caller TEXT NOT NULL,
  tool TEXT NOT NULL,
  query TEXT NOT NULL,
  successes INTEGER NOT NULL,
  errors INTEGER NOT NULL,
  last INTEGER NOT NULL,        -- milliseconds since 1970, of the last call
  PRIMARY KEY (caller, tool, query)
) WITHOUT ROWID;

-- What is too old for the events is too old for these.
CREATE TRIGGER exemplars_expire AFTER INSERT ON notes WHEN NEW.name = 'purged before'
BEGIN
  DELETE FROM exemplars WHERE last < 1000 * CAST(NEW.value AS REAL);
END;
