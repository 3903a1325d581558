-- Which gateway runs what only one of them may run, such as a server over stdio; a lease whose time is over is free.
CREATE TABLE leases (
  key text PRIMARY KEY,
  holder text NOT NULL,         -- the id of a replica
  url text NOT NULL,            -- where the others reach it
  until timestamptz NOT NULL
);
