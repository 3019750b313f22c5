package otlp

import (
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// schema says which release of the conventions the names are of.
const schema = "https://opentelemetry.io/schemas/1.41.0"

// scope is the name of what made the spans.
const scope = "choir.dev/choiros/internal/trace"

// message is a trace as OTLP has it. TracesData is, on the wire, what a collector's service takes.
func message(cid contract.CID, version string, t view.Trace) (*tracepb.TracesData, error) {
	id, err := hex.DecodeString(t.ID)
	if err != nil {
		return nil, fmt.Errorf("the trace's id: %w", err)
	}
	spans := make([]*tracepb.Span, 0, len(t.Spans))
	for _, s := range t.Spans {
		p, err := spanOf(id, s)
		if err != nil {
			return nil, err
		}
		spans = append(spans, p)
	}
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		SchemaUrl: schema,
		Resource: &resourcepb.Resource{Attributes: attributes(map[string]any{
			"service.name": "choir", "service.version": version, "service.instance.id": string(cid), "choir.computer.id": string(cid),
		})},
		ScopeSpans: []*tracepb.ScopeSpans{{SchemaUrl: schema, Scope: &commonpb.InstrumentationScope{Name: scope, Version: version}, Spans: spans}},
	}}}, nil
}

func spanOf(trace []byte, s view.Span) (*tracepb.Span, error) {
	id, err := hex.DecodeString(s.ID)
	if err != nil {
		return nil, fmt.Errorf("a span's id: %w", err)
	}
	parent, err := hex.DecodeString(s.Parent)
	if err != nil {
		return nil, fmt.Errorf("the id of a span's parent: %w", err)
	}
	p := &tracepb.Span{
		TraceId: trace, SpanId: id, ParentSpanId: parent, Name: s.Name, Kind: tracepb.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: nano(s.Start), EndTimeUnixNano: nano(s.End), Attributes: attributes(s.Attributes),
	}
	if s.Kind == view.SpanClient {
		p.Kind = tracepb.Span_SPAN_KIND_CLIENT
	}
	if s.Error != "" {
		p.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
		p.Attributes = append(p.Attributes, attributes(map[string]any{"error.type": s.Error})...)
	}
	return p, nil
}

func nano(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

// attributes are in the order of their names.
func attributes(of map[string]any) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, 0, len(of))
	for key, value := range of {
		v := &commonpb.AnyValue{}
		switch value := value.(type) {
		case string:
			v.Value = &commonpb.AnyValue_StringValue{StringValue: value}
		case int64:
			v.Value = &commonpb.AnyValue_IntValue{IntValue: value}
		case float64:
			v.Value = &commonpb.AnyValue_DoubleValue{DoubleValue: value}
		case bool:
			v.Value = &commonpb.AnyValue_BoolValue{BoolValue: value}
		default:
			continue
		}
		out = append(out, &commonpb.KeyValue{Key: key, Value: v})
	}
	slices.SortFunc(out, func(a, b *commonpb.KeyValue) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return out
}
