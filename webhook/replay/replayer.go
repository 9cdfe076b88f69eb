// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replay evaluates recorded decisions again, under other policies, and compares the answers.
//
// [Replayer] repeats one decision of a [decisionlog.Record] with the handlers of the webhook, at its recorded time. [Run] repeats
// those of whole logs. A decision for which a policy reads what was masked or not recorded is never repeated: the result says why.
//
// The package reads nothing but the records, and never writes.
package replay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/policies"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/webhook/decisionlog"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/pod"
	"sluice.dev/webhook/workload"
)

// FinalPods is the webhook that evaluates pods once more after all others changed them.
const FinalPods = "final-pods"

// Outcome is how a decision differs from the recorded one.
type Outcome string

// The outcomes.
const (
	// Same: the answer is the same, byte for byte.
	Same Outcome = "Same"
	// NowDenied and NowAllowed: the object would be refused now, or admitted.
	NowDenied  Outcome = "NowDenied"
	NowAllowed Outcome = "NowAllowed"
	// Changed: the messages differ, or the changes of the object.
	Changed Outcome = "Changed"
	// NotReplayed: what decided is not recorded as a whole.
	NotReplayed Outcome = "NotReplayed"
)

// Result is a repeated decision.
type Result struct {
	// Outcome compares it with the recorded one, and Reason says why it was not repeated.
	Outcome Outcome
	Reason  string
	// Policies are those for which it differs, or that read what is masked.
	Policies []string
	// Response is the answer now, and Now its record.
	Response admission.Response
	Now      decisionlog.Record
}

// Replayer repeats decisions under a set of policies. It is safe for concurrent use.
type Replayer struct {
	set     *engine.Set
	tenants *engine.Cache[[sha256.Size]byte, *decision.Tenant]

	handlers map[string]func(context.Context, admission.Request) admission.Response
}

// limits are longer than those of a cluster, which may be less busy.
var limits = engine.Limits{Evaluation: 5 * time.Second, Request: time.Minute}

// New compiles policies, which read the data. Records have digests of the data of their time alone: a decision is repeated only if
// what the policies read of the data is equal. The error lists each policy that does not compile, with
// its problems.
func New(sources []engine.Source, data *engine.Data) (*Replayer, error) {
	policyEngine, err := engine.New(engine.Options{Libraries: policies.Libraries(), Limits: limits})
	if err != nil {
		return nil, err
	}
	policyEngine.UpdateData(data)
	var faults []error
	for _, report := range policyEngine.Update(sources) {
		for _, problem := range report.Problems {
			faults = append(faults, problem)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	set, err := policyEngine.Current()
	if err != nil {
		return nil, err
	}
	base := evaluation.Base{
		Evaluator: &evaluation.Evaluator{Engine: policyEngine, Clock: policytime.System()}, Tenants: recordedTenants{},
	}
	tenants := engine.NewCache[[sha256.Size]byte, *decision.Tenant](maxTenants, maxTenantBytes)
	return &Replayer{set: set, tenants: tenants, handlers: map[string]func(context.Context, admission.Request) admission.Response{
		"pods":             (&pod.Mutator{Base: base}).Handle,
		FinalPods:          (&pod.Validator{Base: base}).Handle,
		"workloads":        (&workload.Mutator{Base: base}).Handle,
		"queued-workloads": (&workload.Mutator{Base: base, FailClosed: true}).Handle,
		"templates":        (&workload.Validator{Base: base}).Handle,
	}}, nil
}

// The limits of the cache of tenants: most records are of a few projects.
const (
	maxTenants     = 256
	maxTenantBytes = 16 << 20
)

// IsDecision reports whether policies decided on the request of a record.
func (r *Replayer) IsDecision(record *decisionlog.Record) bool {
	return record.Policies != "" && r.handlers[record.Webhook] != nil
}

// tenantKey is the key of the recorded tenant in a context.
type tenantKey struct{}

// recordedTenants resolves the recorded tenant.
type recordedTenants struct{}

var _ evaluation.Tenants = recordedTenants{}

// Resolve implements evaluation.Tenants.
func (recordedTenants) Resolve(ctx context.Context, _ string) (*decision.Tenant, error) {
	tenant, _ := ctx.Value(tenantKey{}).(*decision.Tenant)
	return tenant, nil
}

// ResolveForPod implements evaluation.Tenants.
func (t recordedTenants) ResolveForPod(ctx context.Context, _ *admission.Request) (*decision.Tenant, error) {
	return t.Resolve(ctx, "")
}

// Replay repeats the decision of a record, for which [Replayer.IsDecision] holds.
func (r *Replayer) Replay(ctx context.Context, record *decisionlog.Record) Result {
	fail := func(format string, arguments ...any) Result {
		return Result{Outcome: NotReplayed, Reason: fmt.Sprintf(format, arguments...)}
	}
	switch {
	case !record.Allowed && record.Code != http.StatusForbidden:
		return fail("it was not decided: HTTP status %d", record.Code)
	case record.Allowed && record.Message != "": // a workload whose pods are the gate
		return fail("it was not decided: %s", record.Message)
	case record.Input == nil:
		return fail("its object was not recorded")
	case record.PolicyTime.IsZero():
		return fail("the record is invalid: policyTime is required")
	}
	req, tenant, err := r.decode(record.Input)
	if err != nil {
		return fail("the record is invalid: %v", err)
	}
	if pointer, ok := firstReadBySluice(record); ok {
		return fail("%s is masked, and Sluice itself reads it", generalize(pointer))
	}
	var seen observed
	trace := evaluation.Trace{Now: record.PolicyTime, Observe: seen.add}
	response := r.handlers[record.Webhook](evaluation.WithTrace(context.WithValue(ctx, tenantKey{}, tenant), &trace), *req)
	entry := evaluation.NewEntry(record.Webhook, req, &response, &trace)
	if name := seen.otherData(r.set, record); name != "" {
		return fail("a policy reads data.%s: data of its time are not recorded, and the present data differ or cannot be compared", name)
	}
	result := Result{Response: response, Now: entry.Record}
	incomplete := firstIncomplete(result.Now.Evaluations)
	isFailure := response.Allowed && result.Now.Message != "" || !response.Allowed && result.Now.Code != http.StatusForbidden
	if incomplete != "" || isFailure {
		return fail("it could not be evaluated now: %s", strings.TrimSpace(incomplete+" "+result.Now.Message))
	}
	if len(record.Masked) > 0 {
		if result.Policies, result.Reason = seen.readsMasked(r.set, record); result.Reason != "" {
			result.Outcome = NotReplayed
			return result
		}
	}
	object, err := document.Decode(req.Object.Raw)
	if err != nil {
		return fail("the record is invalid: object: %v", err)
	}
	result.Now.Redact(object.Object())
	result.compare(record)
	return result
}

// decode returns the request and the tenant of a recorded input.
func (r *Replayer) decode(in *decisionlog.Input) (*admission.Request, *decision.Tenant, error) {
	var req admissionv1.AdmissionRequest
	if err := json.Unmarshal(in.Request, &req); err != nil {
		return nil, nil, fmt.Errorf("request: %w", err)
	}
	if len(in.Object) == 0 || in.Tenant == nil {
		return nil, nil, errors.New("object and tenant are required")
	}
	req.Object.Raw, req.OldObject.Raw = in.Object, in.OldObject
	tenant, err := r.tenant(in.Tenant)
	if err != nil {
		return nil, nil, fmt.Errorf("tenant: %w", err)
	}
	return &admission.Request{AdmissionRequest: req}, tenant, nil
}

// tenant returns the tenant of a snapshot. Equal snapshots share one, with what the policies made of its documents.
func (r *Replayer) tenant(of *decision.Snapshot) (*decision.Tenant, error) {
	raw, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(raw)
	if known, ok := r.tenants.Get(key); ok {
		return known, nil
	}
	tenant, err := of.Tenant()
	if err != nil {
		return nil, err
	}
	r.tenants.Put(key, tenant, 8*len(raw))
	return tenant, nil
}

// firstIncomplete returns the first policy that was not evaluated to its end.
func firstIncomplete(evaluations []decisionlog.Evaluation) string {
	at := slices.IndexFunc(evaluations, func(e decisionlog.Evaluation) bool {
		return e.Result == string(engine.ResultTimedOut) || e.Result == string(engine.ResultUnevaluated)
	})
	if at < 0 {
		return ""
	}
	return "policy " + evaluations[at].Policy + " " + evaluations[at].Result
}
