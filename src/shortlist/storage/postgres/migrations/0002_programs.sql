-- Programs that were saved under a name, as JSON.
CREATE TABLE programs (name text PRIMARY KEY, document text NOT NULL);
