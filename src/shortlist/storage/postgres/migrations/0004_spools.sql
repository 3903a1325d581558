-- How many records of a gateway's spool are in this database, written in the transaction of those records.
CREATE TABLE spools (name text PRIMARY KEY, stored bigint NOT NULL, at timestamptz NOT NULL DEFAULT now());
