"""What Redis does in one step: the Lua scripts of the run store, and the names of its keys.

A chat is a hash that tells of its last run; the log of a run is a stream. The last entry of a log has the highest id
there is, so that Redis itself refuses whatever an owner writes that does not know yet that its run was ended by others.
"""

from typing import Final

import msgspec

from usechat.runs.run import RunInfo

__all__ = ["ANY", "BEAT", "CLAIM", "END", "IS_READ", "LATEST", "LOOK", "LOSE", "SEAL", "STOP", "Keys"]

ANY: Final = "*"
"""Whichever run was the last; no run has this id."""
SEAL: Final = "18446744073709551615-18446744073709551615"
"""The id of a log's last entry; XADD behind it is an error ("exhausted the last possible ID")."""


class Keys(msgspec.Struct, frozen=True):
    """The names of keys. All keys of a chat share a hash tag, so that they live on the same node."""

    prefix: str

    def chat(self, chat_id: str) -> str:
        """The hash of a chat: its last run."""
        return f"{self.prefix}:{{{chat_id}}}"

    def log(self, info: RunInfo) -> str:
        """The stream of a run's frames."""
        return f"{self.chat(info.chat_id)}:log:{info.run_id}"

    def readers(self, info: RunInfo) -> str:
        """The workers that read a run, each with the time until which that is sure."""
        return f"{self.chat(info.chat_id)}:readers:{info.run_id}"

    def inbox(self, worker: str) -> str:
        """The stream of orders to a worker."""
        return f"{self.prefix}:worker:{worker}"


_COMMON: Final = f"""
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function text(number)
  return string.format('%.0f', number)
end
local function seal(log, state, remember)
  local written = redis.pcall('XADD', log, 'NOMKSTREAM', '{SEAL}', 'end', state)
  redis.call('PEXPIRE', log, remember)
  return type(written) == 'string'
end
-- Declare a run lost. Returns how long it went on, unless somebody else has said before how it ended.
local function declare(chat, log, run, remember)
  local first = redis.call('XRANGE', log, '0-1', '0-1')[1]
  local found = redis.call('HMGET', chat, 'run', 'state')
  local is_news = found[1] == run and found[2] == 'running'
  if is_news then
    redis.call('HSET', chat, 'state', 'lost')
    redis.call('PEXPIRE', chat, remember)
  end
  is_news = seal(log, 'lost', remember) or is_news
  return is_news and now() - (first and tonumber(first[2][4]) or now())
end
-- Return the chat's last run and its state. A run whose lease is over is lost from here on.
local function look(chat, remember)
  local found = redis.call('HMGET', chat, 'run', 'state', 'lease')
  if found[2] == 'running' and tonumber(found[3]) <= now() then
    return found[1], 'lost', 0, declare(chat, chat .. ':log:' .. found[1], found[1], remember)
  end
  return found[1], found[2], tonumber(found[3] or 0), false
end
"""

CLAIM: Final = f"""{_COMMON}
local chat, log = KEYS[1], KEYS[2]
local run, info, owner, continued, lease, keep, remember, after = unpack(ARGV)
local active, state, _, lost = look(chat, remember)
if active == run then return {{false, false}} end  -- asked again, because the first answer did not arrive
local known = redis.call('HGET', chat, 'info')
if state == 'running' then return {{{{known, state}}, false}} end
if active and after ~= '{ANY}' and active ~= after then
  return {{{{known, state}}, lost and {{known, 'lost', lost}}}}
end
redis.call('DEL', chat)
redis.call('HSET', chat, 'run', run, 'info', info, 'state', 'running', 'owner', owner,
  'continued', continued, 'lease', text(now() + lease))
redis.call('XADD', log, '0-1', 'run', run, 'began', text(now()))
redis.call('PEXPIRE', chat, keep)
redis.call('PEXPIRE', log, keep)
return {{false, lost and {{known, 'lost', lost}}}}
"""
"""Make a run the chat's active one.

Returns info and state of the one that is, if there is one, or of the last one if that is not the one it should come
after; and of the one that this declared lost, with how long it went on.
"""

BEAT: Final = """
local chat, log = KEYS[1], KEYS[2]
local run, owner, lease, keep = unpack(ARGV)
local found = redis.call('HMGET', chat, 'run', 'state', 'owner', 'stop')
if found[1] ~= run or found[2] ~= 'running' or found[3] ~= owner or redis.call('EXISTS', log) == 0 then
  return 'lost'
end
local time = redis.call('TIME')
redis.call('HSET', chat, 'lease', string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease))
redis.call('PEXPIRE', chat, keep)
redis.call('PEXPIRE', log, keep)
return found[4] or 'running'
"""
"""Renew a run's lease. Returns ``lost``, ``stop`` or ``running``."""

END: Final = f"""{_COMMON}
local chat, log = KEYS[1], KEYS[2]
local run, owner, info, state, remember, last = unpack(ARGV)
local found = redis.call('HMGET', chat, 'run', 'state', 'owner')
if found[1] == run and found[2] == 'running' and found[3] == owner then
  redis.call('HSET', chat, 'info', info, 'state', state)
  redis.call('PEXPIRE', chat, remember)
end
local written = redis.pcall('XADD', log, 'NOMKSTREAM', '{SEAL}', 'end', state, 'last', last)
redis.call('PEXPIRE', log, remember)
if type(written) == 'string' then return 'ended' end
local final = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
-- Asked again, because the first answer did not arrive: only owners tell which entry is the last.
return final and final[2][3] == 'last' and 'ended' or 'lost'
"""
"""The owner ends its run. Returns ``ended``, or ``lost`` if others have done it or nothing is left to end."""

LOSE: Final = f"""{_COMMON}
local chat, log = KEYS[1], KEYS[2]
local run, remember = unpack(ARGV)
if declare(chat, log, run, remember) then return 'lost' end
local final = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
if final then return final[2][3] == 'last' and final[2][2] end
return redis.call('HGET', chat, 'run') ~= run and 'lost'
"""
"""The owner gives its run up. Returns how it ended, unless somebody else has declared it lost, or still can.

That is ``lost``, or what the owner had said itself if that was written in the end.
"""

LATEST: Final = f"""{_COMMON}
local run, state, _, lost = look(KEYS[1], ARGV[1])
return run and {{redis.call('HGET', KEYS[1], 'info'), state, lost}}
"""
"""Return info and state of the chat's last run; and if this declared it lost, how long it went on."""

LOOK: Final = f"""{_COMMON}
local chat, log, readers = KEYS[1], KEYS[2], KEYS[3]
local run, reader, lease, remember = unpack(ARGV)
if redis.call('EXISTS', log) == 0 then return {{-1, false}} end
if redis.call('HGET', chat, 'run') ~= run then return {{0, declare(chat, log, run, remember)}} end
local _, state, lease_end, lost = look(chat, remember)
if state ~= 'running' then
  seal(log, state, remember)
  return {{0, lost}}
end
redis.call('ZADD', readers, text(now() + 2 * lease), reader)
redis.call('PEXPIRE', readers, 2 * lease)
return {{lease_end - now(), false}}
"""
"""A worker reads a run.

Returns how long its lease lasts; 0 when its log has an end; -1 when the log is gone. If this declared the run lost,
tells how long it went on.
"""

IS_READ: Final = f"""{_COMMON}
return redis.call('ZCOUNT', KEYS[1], text(now()), '+inf')
"""
"""Return how many workers read a run."""

STOP: Final = """
local found = redis.call('HMGET', KEYS[1], 'run', 'state', 'owner')
if found[1] ~= ARGV[1] or found[2] ~= 'running' then return false end
if ARGV[2] == 'stop' then redis.call('HSET', KEYS[1], 'stop', 'stop') end
return found[3]
"""
"""Mark a run as to be stopped, if it is in any case. Returns its owner."""
