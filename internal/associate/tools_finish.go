package associate

import (
	"encoding/json"

	"choir.dev/choiros/contract"
)

// ToolFinish is the tool an agent ends its task with.
const ToolFinish = "finish"

func finishSpec() contract.ToolSpec {
	return contract.ToolSpec{Name: ToolFinish,
		Description: "End the task. ok: the goal is reached. failed: it can't be. needs_input: only the user can decide how to go on; ask in question.",
		Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["summary","status"],"properties":{
			"summary":{"type":"string","minLength":1,"maxLength":16000},
			"status":{"type":"string","enum":["ok","failed","needs_input"]},
			"question":{"type":"string","maxLength":8192},
			"suggested_next":{"type":"string","maxLength":4096}}}`)}
}
