-- Logins to upstream servers, sealed with a key that is not in this database.
CREATE TABLE grants (name text PRIMARY KEY, sealed bytea NOT NULL);
CREATE TRIGGER grants_changed AFTER INSERT OR DELETE OR UPDATE ON grants
FOR EACH STATEMENT EXECUTE FUNCTION tell_change();
