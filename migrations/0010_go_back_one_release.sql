-- How far one may go back: a release that knows at least this schema works on the present one (it only has more).
-- Written by the migrating release; what it says is tested against a recording of the former release's statements.
ALTER TABLE instance ADD COLUMN works_from integer;
