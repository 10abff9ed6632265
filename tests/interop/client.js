"use strict";
// An ESME on npm `smpp`: binds, submits, asks, answers receipts, unbinds. Arguments: port, and a CA file for TLS.
// Tells on standard output one JSON line per event.
const fs = require("fs");
const smpp = require("smpp");

const tell = (event) => process.stdout.write(JSON.stringify(event) + "\n");
const [port, ca] = process.argv.slice(2);
const options = { host: "127.0.0.1", port: Number(port), tls: Boolean(ca), ca: ca ? fs.readFileSync(ca) : undefined };
const texts = { plain: "Ciao €5", ucs2: "Привет 😀" };
const session = smpp.connect(options);
const receipts = new Set();
let waited = 4;

session.on("error", (error) => { tell({ event: "error", message: String(error.message) }); process.exit(1); });
session.on("close", () => { tell({ event: "close" }); process.exit(0); });
session.on("enquire_link", (pdu) => { tell({ event: "enquire_link" }); session.send(pdu.response()); });
session.on("unbind", (pdu) => { tell({ event: "unbind" }); session.send(pdu.response()); });
session.on("deliver_sm", (pdu) => {
  const text = pdu.short_message.message === undefined ? pdu.short_message : pdu.short_message.message;
  tell({ event: "deliver_sm", text: String(text), esm_class: pdu.esm_class, id: pdu.receipted_message_id, state: pdu.message_state });
  session.send(pdu.response());
  receipts.add(pdu.receipted_message_id);
  if (receipts.size === waited) ask();
});

function ask() {
  const [id] = receipts;
  session.query_sm({ message_id: id }, (answer) => {
    tell({ event: "query_sm_resp", status: answer.command_status, state: answer.message_state });
    session.cancel_sm({ message_id: id }, (refused) => {
      tell({ event: "cancel_sm_resp", status: refused.command_status });
      session.unbind((last) => { tell({ event: "unbind_resp", status: last.command_status }); session.close(); });
    });
  });
}

function submit(name, fields) {
  session.submit_sm({ source_addr: "Interop", source_addr_ton: 5, destination_addr: "393331234567", registered_delivery: 1, ...fields },
    (pdu) => tell({ event: "submit_sm_resp", name, status: pdu.command_status, id: pdu.message_id }));
}

session.on(ca ? "secureConnect" : "connect", () => {
  session.bind_transceiver({ system_id: "node", password: "interop" }, (pdu) => {
    tell({ event: "bind_transceiver_resp", status: pdu.command_status, system_id: pdu.system_id, version: pdu.sc_interface_version });
    submit("plain", { short_message: texts.plain });
    submit("ucs2", { data_coding: 8, short_message: texts.ucs2 });
    submit("part", { short_message: { udh: Buffer.from([5, 0, 3, 9, 2, 1]), message: "first part" } });
    submit("payload", { message_payload: "x".repeat(1000), user_message_reference: 77 });
    session.enquire_link((pdu) => tell({ event: "enquire_link_resp", status: pdu.command_status }));
  });
});
