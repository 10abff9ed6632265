"use strict";
// npm `smpp` as a codec: reads PDUs as hexadecimal lines, tells what it saw and writes each anew.
const { PDU } = require("smpp");

function plain(value) {
  if (Buffer.isBuffer(value)) return { octets: value.toString("hex") };
  if (value instanceof Date) return { date: value.toISOString() };
  if (value && typeof value === "object" && "message" in value) {
    return { message: plain(value.message), udh: Array.isArray(value.udh) ? value.udh.map(plain) : null };
  }
  return value;
}

for (const line of require("fs").readFileSync(0, "ascii").split("\n")) {
  if (!line) continue;
  const pdu = PDU.fromBuffer(Buffer.from(line, "hex"));
  const seen = {};
  for (const name of Object.keys(pdu)) seen[name] = plain(pdu[name]);
  const made = {};
  for (const name of Object.keys(pdu)) if (!["command", "command_length", "command_id"].includes(name)) made[name] = pdu[name];
  const again = new PDU(pdu.command, made);
  again.sequence_number = pdu.sequence_number;
  process.stdout.write(JSON.stringify({ seen, again: again.toBuffer().toString("hex") }) + "\n");
}
