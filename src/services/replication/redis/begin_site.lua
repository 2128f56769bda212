-- Forgets a site that was given up, since another one takes its place: positions, notes and the share of this site are those
-- of the old one. Returns 1, or 0 if a relay of this site has done so.
--
-- KEYS: the hash of the other site, the hash of positions, the hash of the code space. ARGV: the name of the site that was
-- given up.
if redis.call('HGET', KEYS[1], 'given_up') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HDEL', KEYS[3], 'share')
return 1
