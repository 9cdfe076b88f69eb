// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decisionlog records the answers of the webhook to admission requests.
//
// [Log] writes each one as a line of JSON, a [Record], to the standard output and to files of bounded size. It never delays a
// request: it drops and counts what exceeds its queue, and what it cannot write. With whole objects a record has all that decided,
// its [Input], without the texts that a [Pattern] masks. [Reader] reads the records again.
//
// The package never writes to the network. Its files are readable by their owner only.
package decisionlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

// Kind is the kind of a record, and Version that of its form. A reader refuses records of later versions, and ignores fields that
// it does not know.
const (
	Kind    = "DecisionRecord"
	Version = 1
)

// Record is the answer to one admission request.
type Record struct {
	// Kind is [Kind], and Version [Version].
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	// Time is when the request arrived, in machine time. PolicyTime is input.now; zero if no policy was considered.
	Time       time.Time `json:"time"`
	PolicyTime time.Time `json:"policyTime,omitzero"`
	// Webhook is the name of the webhook: pods, final-pods, workloads, queued-workloads, templates, ...
	Webhook string `json:"webhook"`
	// UID identifies the call of the webhook, and Operation is CREATE, UPDATE, DELETE or CONNECT.
	UID       string `json:"uid"`
	Operation string `json:"operation"`
	// Resource and Subresource are those of the request, such as pods, and ObjectKind and ObjectGroup those of the object.
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	ObjectKind  string `json:"objectKind"`
	ObjectGroup string `json:"objectGroup,omitempty"`
	// Namespace and Name are those of the object. An object without a name has GenerateName.
	Namespace    string `json:"namespace,omitempty"`
	Name         string `json:"name,omitempty"`
	GenerateName string `json:"generateName,omitempty"`
	// User is the name of the user, and DryRun reports that the request changes nothing.
	User   string `json:"user"`
	DryRun bool   `json:"dryRun,omitempty"`
	// Repeated reports that the API server called the webhook pods again for the same pod, because another webhook changed it. The
	// pod has the changes of the first call.
	Repeated bool `json:"repeated,omitempty"`
	// Project and Department own the namespace; empty if no policy was considered.
	Project    string `json:"project,omitempty"`
	Department string `json:"department,omitempty"`
	// Policies is the digest of the policies with their parameters; empty if none was considered.
	Policies string `json:"policies,omitempty"`
	// Allowed reports whether the request is admitted. Code is the HTTP status of a refusal: 403 if policies refused it, 500 or
	// more if it could not be evaluated.
	Allowed bool  `json:"allowed"`
	Code    int32 `json:"code,omitempty"`
	// Message has the denials, a line each, and Warnings what the author sees. Both are without the values of variables and
	// arguments of containers.
	Message  string   `json:"message,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// DeniedBy are the policies that refused it.
	DeniedBy []string `json:"deniedBy,omitempty"`
	// Cached reports that the answer is that to an equal object: its evaluations are of that one.
	Cached bool `json:"cached,omitempty"`
	// Changed are the paths that each policy changed, by policy.
	Changed map[string][]string `json:"changed,omitempty"`
	// Evaluations are those of the policies; none if it was refused before.
	Evaluations []Evaluation `json:"evaluations,omitempty"`
	// PatchBytes is the size of the JSON patch, and Microseconds the time to answer.
	PatchBytes   int   `json:"patchBytes,omitempty"`
	Microseconds int64 `json:"durationMicroseconds"`

	// Input is all that decided, and Patch the JSON patch, where whole objects are recorded. Masked are the JSON pointers of the
	// texts in Input that are replaced.
	Input  *Input          `json:"input,omitempty"`
	Patch  json.RawMessage `json:"patch,omitempty"`
	Masked []string        `json:"masked,omitempty"`
}

// Evaluation is that of one policy.
type Evaluation struct {
	// Policy is its name.
	Policy string `json:"policy"`
	// Result is passed, warned, denied, failed, timed-out or unevaluated.
	Result string `json:"result"`
	// Microseconds is how long it took.
	Microseconds int64 `json:"microseconds"`
	// Cached reports that the result came from the cache of the policy.
	Cached bool `json:"cached,omitempty"`
	// Template is the path of the pod template; empty for the object itself.
	Template string `json:"template,omitempty"`
}

// Input is all that decided.
type Input struct {
	// Request is the admission request without its objects.
	Request json.RawMessage `json:"request"`
	// Object and OldObject are those of the request, without metadata.managedFields.
	Object    json.RawMessage `json:"object,omitempty"`
	OldObject json.RawMessage `json:"oldObject,omitempty"`
	// Tenant is the project.
	Tenant *decision.Snapshot `json:"tenant"`
	// Data has digests of the data that the policies in force read, by its names. The data itself is not recorded.
	Data map[string]string `json:"data,omitempty"`
}

// Entry is an answer to record. Its parts are not modified.
type Entry struct {
	// Record is complete but for what follows from the other fields.
	Record Record
	// Request is the request.
	Request *admissionv1.AdmissionRequest
	// Patch is the JSON patch, and Tenant the project; nil if no policy was considered.
	Patch  []byte
	Tenant *decision.Tenant
	// Set has the policies with their data; nil if none was considered.
	Set *engine.Set
}

// bytes estimates the memory of an entry.
func (e *Entry) bytes() int64 {
	return entryBytes + int64(len(e.Request.Object.Raw)+len(e.Request.OldObject.Raw)+len(e.Patch))
}

// omitObjects leaves out what only a record with its input needs. The messages are redacted with the object.
func (e *Entry) omitObjects() {
	request := *e.Request
	request.OldObject.Raw, e.Patch, e.Set = nil, nil, nil
	if e.Record.Message == "" && len(e.Record.Warnings) == 0 {
		request.Object.Raw = nil
	}
	e.Request = &request
}

// complete returns the record of an entry with redacted messages and, if objects is set, its input.
func (e *Entry) complete(objects bool, mask, unmasked []Pattern) (*Record, error) {
	r := &e.Record
	r.Kind, r.Version = Kind, Version
	decoded, err := document.Decode(e.Request.Object.Raw)
	if err != nil && len(e.Request.Object.Raw) > 0 {
		decoded = document.Document{} // it was refused for that
	}
	r.Redact(decoded.Object())
	if !objects || e.Tenant == nil || err != nil {
		return r, nil //nolint:nilerr // an object that cannot be decoded has no input
	}
	m := &masker{mask: mask, unmasked: unmasked}
	if r.Input, err = e.input(m, decoded); err != nil {
		return nil, err
	}
	if r.Patch, err = maskPatch(e.Patch, m); err != nil {
		return nil, err
	}
	r.Masked = m.pointers
	return r, nil
}

// Redact removes the values of variables and arguments from the messages.
func (r *Record) Redact(object map[string]any) {
	if r.Message == "" && len(r.Warnings) == 0 {
		return
	}
	const separator = "\x00"
	texts := append([]string{r.Message}, r.Warnings...)
	redacted := strings.Split(decision.Redact(strings.Join(texts, separator), object), separator)
	if len(redacted) != len(texts) { // a value has the separator
		redacted = slices.Repeat([]string{decision.Redacted}, len(texts))
	}
	r.Message, r.Warnings = redacted[0], redacted[1:]
}

// input returns what decided, with masked texts.
func (e *Entry) input(m *masker, object document.Document) (*Input, error) {
	request := *e.Request
	request.Object.Raw, request.OldObject.Raw = nil, nil
	old, err := document.Decode(e.Request.OldObject.Raw)
	if err != nil && len(e.Request.OldObject.Raw) > 0 {
		return nil, fmt.Errorf("decode old object: %w", err)
	}
	review, err := document.FromGo(&request)
	if err != nil {
		return nil, err
	}
	in := &Input{}
	if e.Set != nil {
		in.Data = e.Set.DataDigests(e.Request.Namespace)
	}
	for _, part := range []struct {
		name   string
		value  document.Document
		target *json.RawMessage
	}{{"request", review, &in.Request}, {"object", object, &in.Object}, {"oldObject", old, &in.OldObject}} {
		if part.value.IsAbsent() {
			continue
		}
		if *part.target, err = json.Marshal(m.at(step{key: part.name}, part.value.Value())); err != nil {
			return nil, fmt.Errorf("encode %s: %w", part.name, err)
		}
	}
	if in.Tenant, err = e.Tenant.Snapshot(); err != nil {
		return nil, err
	}
	// The other parts of a tenant are Sluice's own; anyone may annotate a namespace.
	m.path = []step{{key: "tenant"}, {key: "input"}}
	in.Tenant.Input["namespace"], err = json.Marshal(m.at(step{key: "namespace"}, e.Tenant.Documents.Namespace.Value()))
	m.path = nil
	return in, err
}

// maskPatch returns a JSON patch of the object in which the masked texts of the input have the same markers.
func maskPatch(patch []byte, m *masker) ([]byte, error) {
	if len(patch) == 0 || len(m.markers) == 0 {
		return patch, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(patch))
	decoder.UseNumber()
	var operations []map[string]any
	if err := decoder.Decode(&operations); err != nil {
		return nil, fmt.Errorf("decode patch: %w", err)
	}
	of := masker{mask: m.mask, unmasked: m.unmasked, markers: m.markers, onlyKnown: true}
	for _, operation := range operations {
		value, ok := operation["value"]
		pointer, isText := operation["path"].(string)
		if !ok || !isText {
			continue
		}
		operation["value"] = of.below(append([]string{"object"}, SplitPointer(pointer)...), value)
	}
	return json.Marshal(operations)
}

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
