-- The audit log: the lines of every trail as they were chained.
CREATE TABLE audit (
  trail text COLLATE "C" NOT NULL,  -- begins with its day
  seq bigint NOT NULL,
  line text NOT NULL,
  PRIMARY KEY (trail, seq)
);
-- Whose pseudonyms the lines name.
CREATE TABLE audit_people (principal text PRIMARY KEY, pseudonym text NOT NULL UNIQUE);

-- Lines are added and never changed; only the end of their retention removes them.
CREATE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_setting('shortlist.retention', true) = 'on' THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'audit records are not changed, and removed only when their retention ends';
END $$;
CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION keep_audit();
CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION keep_audit();
