package rpc

import (
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// EffectsRequest lists effects outside of the computer.
type EffectsRequest struct {
	At
	Paged
	Run     string `query:"run" maxLength:"36" doc:"only those of the run"`
	Outcome string `query:"outcome" enum:"open,done,failed,unknown" doc:"only those that came to this; open: under way"`
}

// Validate implements validation.
func (r EffectsRequest) Validate() error {
	if r.Run == "" {
		return nil
	}
	return contract.ValidID("run", r.Run)
}

// OnEffect names an effect.
type OnEffect struct {
	At
	Effect string `path:"effect" maxLength:"36"`
}

// Validate implements validation.
func (r OnEffect) Validate() error { return contract.ValidID("effect", r.Effect) }

// ResolveEffectRequest says what a person found of an effect.
type ResolveEffectRequest struct {
	OnEffect
	Body view.ResolveEffect
}

// Validate implements validation.
func (r ResolveEffectRequest) Validate() error {
	if err := r.OnEffect.Validate(); err != nil {
		return err
	}
	return contract.EffectResolved{Effect: r.Effect, Found: r.Body.Found, Note: r.Body.Note}.Validate()
}

// CompensateEffectRequest asks to undo an effect outside.
type CompensateEffectRequest struct {
	OnEffect
	Body view.CompensateEffect
}

// What calls changed outside. That something did not happen lets it be made again, so only people say it.
var (
	EffectList = list[EffectsRequest, view.Effect](Declared{
		Name: "effect.list", Summary: "What tasks changed outside of the computer, or may have, newest first",
		HTTP: get("/effects", "effects-list"), May: contract.CanRead, Callers: API, Noun: "effects",
		Tool: &Tool{Description: "List what tasks changed outside of the computer, or may have (outcome unknown), newest first. No checkpoint undoes it. Page with before."}})
	EffectShow = single[OnEffect, view.Effect](Declared{
		Name: "effect.show", Summary: "An effect outside with its arguments and what the service answered",
		HTTP: get("/effects/{effect}", "effects-show"), May: contract.CanRead, Callers: API | Desktop})
	EffectResolve = single[ResolveEffectRequest, view.Effect](Declared{
		Name: "effect.resolve", Summary: "Say what you found of an effect whose outcome is unknown, once",
		HTTP: post("/effects/{effect}/resolve", "effects-resolve"), May: contract.CanApprove, Callers: People, Effect: Governs})
	EffectCompensate = single[CompensateEffectRequest, view.Acted](Declared{
		Name: "effect.compensate", Summary: "Submit a prompt that continues the effect's run, once that has ended, and asks to undo the effect outside",
		HTTP: post("/effects/{effect}/compensate", "effects-compensate"), May: contract.CanPrompt, Callers: API | Desktop, Effect: Stores})
)
