// What Onward adds to one run of pi, beside the person's own settings and without touching them: our tools, as an MCP
// server, and a gate that asks us before any other tool runs. What is allowed is decided where the turn is driven
// (pi.py); this only carries the question there and the answer back, and lets nothing through if no answer comes.

export default function (pi) {
  const given = JSON.parse(process.env.ONWARD_PI);
  // The shell of the agent inherits the environment; the way to our tools is not its business.
  delete process.env.ONWARD_PI;
  if (given.server) pi.registerMcpServer(given.name, given.server);
  pi.on("tool_call", async (event, ctx) => {
    if (event.toolName.startsWith(given.ours)) return;
    const asked = JSON.stringify({ id: event.toolCallId, tool: event.toolName, input: event.input });
    const answer = await ctx.ui.input(given.gate, asked);
    if (answer !== "granted") return { block: true, reason: answer || "It was not allowed, and nobody said why." };
  });
}
