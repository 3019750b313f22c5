package attack_test

import "choir.dev/choiros/internal/defence"

// mcpRows are attacks over the Model Context Protocol.
var mcpRows = []Row{
	beside(30, "a session of models is used with another token, or for another computer", "control", "TestWhoModelsMayNotCallFor", `(another token uses a session|a session is used for another computer): .*`, defence.MCPSession),
	beside(30, "a token opens sessions of models without end", "control", "TestSessionsOfModelsAreBounded", `a token opens any number of sessions`, defence.MCPSessions),
	beside(54, "a tool of a server changes after it was approved", "mcpclient", "TestAToolThatChangedAsksAgain", `a tool with another .* is used without being asked about`, defence.MCPApproved),
	beside(54, "a server offers two tools whose names come to the same", "mcpclient", "TestWhatAServerMayNotOffer", `two tools are .*`, defence.MCPNames),
	beside(32, "a server offers a tool whose schema is too large to be checked", "mcpclient", "TestWhatAServerMayNotOffer", `a schema is taken although it is (deep|wide|long): .*`, defence.MCPSchema),
}
