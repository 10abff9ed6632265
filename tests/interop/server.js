"use strict";
// An SMSC on npm `smpp`: takes every bind, answers every submit_sm, reports each as delivered 100 ms later.
// Arguments: a certificate and its key, for TLS. Tells on standard output one JSON line per event; ends when its standard input ends.
const fs = require("fs");
const smpp = require("smpp");

const [cert, key] = process.argv.slice(2);
const options = cert ? { cert: fs.readFileSync(cert), key: fs.readFileSync(key) } : {};
const tell = (event) => process.stdout.write(JSON.stringify(event) + "\n");
let counter = 0;

function stamp(date) {
  const two = (n) => String(n).padStart(2, "0");
  return two(date.getUTCFullYear() % 100) + two(date.getUTCMonth() + 1) + two(date.getUTCDate()) + two(date.getUTCHours()) + two(date.getUTCMinutes());
}

function report(session, pdu, id) {
  const now = stamp(new Date());
  session.deliver_sm({
    source_addr: pdu.destination_addr,
    source_addr_ton: pdu.dest_addr_ton,
    source_addr_npi: pdu.dest_addr_npi,
    destination_addr: pdu.source_addr,
    esm_class: 4,
    short_message: `id:${id} sub:001 dlvrd:001 submit date:${now} done date:${now} stat:DELIVRD err:000 text:`,
    receipted_message_id: id,
    message_state: 2,
  }, (answer) => tell({ event: "deliver_sm_resp", id, status: answer.command_status }));
}

const server = smpp.createServer(options, (session) => {
  for (const kind of ["bind_transceiver", "bind_transmitter", "bind_receiver"]) {
    session.on(kind, (pdu) => {
      tell({ event: kind, system_id: pdu.system_id, password_ok: pdu.password === "interop", version: pdu.interface_version });
      session.send(pdu.response({ system_id: "node-smpp", command_status: pdu.password === "interop" ? 0 : smpp.ESME_RINVPASWD }));
    });
  }
  session.on("enquire_link", (pdu) => { tell({ event: "enquire_link" }); session.send(pdu.response()); });
  session.on("unbind", (pdu) => { tell({ event: "unbind" }); session.send(pdu.response(), () => session.close()); });
  session.on("submit_sm", (pdu) => {
    const id = (0x1000 + ++counter).toString(16);
    const content = pdu.short_message || {};
    tell({
      event: "submit_sm",
      id,
      source: pdu.source_addr,
      destination: pdu.destination_addr,
      dest_addr_ton: pdu.dest_addr_ton,
      registered_delivery: pdu.registered_delivery,
      data_coding: pdu.data_coding,
      esm_class: pdu.esm_class,
      validity_period: String(pdu.validity_period || ""),
      text: content.message === undefined ? String(content) : String(content.message),
      parts: Array.isArray(content.udh) && content.udh.length ? Array.from(content.udh[0]) : null,
    });
    session.send(pdu.response({ message_id: id }));
    if (pdu.registered_delivery) setTimeout(() => report(session, pdu, id), 100);
  });
  session.on("error", (error) => tell({ event: "error", message: String(error.message) }));
});

server.listen(0, "127.0.0.1", () => tell({ event: "listening", port: server.address().port }));
process.stdin.on("end", () => process.exit(0));
process.stdin.resume();
