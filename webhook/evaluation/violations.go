// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package evaluation

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/merge"
)

// Violations are the policies that an object violated. They hold for every object with the same response,
// and so they are cached with it.
type Violations struct {
	// denied are of the policies that refuse the object, and warned of those in Warn that would.
	denied, warned []violation
	// dryRun is of the policies in DryRun; nil if none matches.
	dryRun *dryRunViolations
}

// violation is the violation of one policy.
type violation struct {
	version engine.Version
	message string
	// changes are the fields that a policy in DryRun would have changed; only: it would not have refused
	// the object.
	changes []string
	only    bool
}

// Origin identifies the object and the user of a request whose violations are counted.
type Origin struct {
	req     *admission.Request
	project string
}

// NewOrigin returns the origin of a request; nil for one with dryRun, which is not counted.
func NewOrigin(req *admission.Request, tenant *decision.Tenant) *Origin {
	if req.DryRun != nil && *req.DryRun {
		return nil
	}
	return &Origin{req: req, project: tenant.Project}
}

// IsRepeated reports whether the API server calls the webhook again for a new object, because another webhook changed it.
// The earlier call wrote an annotation; on pods no author can write it.
func IsRepeated(req *admission.Request) bool {
	annotation := v1alpha1.AnnotationEvaluatedUnder
	if req.Kind.Kind != "Pod" {
		annotation = v1alpha1.AnnotationCreatedBy
	}
	return gjson.GetBytes(req.Object.Raw, "metadata.annotations."+gjson.Escape(annotation)).Exists()
}

// example returns the object as an example, without a message.
func (o *Origin) example() v1alpha1.PolicyExample {
	name := o.req.Name
	for _, path := range []string{"metadata.name", "metadata.generateName"} {
		if name == "" {
			name = gjson.GetBytes(o.req.Object.Raw, path).Str
			if name != "" && path != "metadata.name" {
				name += "*"
			}
		}
	}
	return v1alpha1.PolicyExample{
		Time: metav1.NewTime(policytime.MachineNow()), Project: o.project,
		Kind: o.req.Kind.Kind, Namespace: o.req.Namespace, Name: name, User: o.req.UserInfo.Username,
	}
}

// Count counts the violations of an object that is admitted or refused for the first time. What only warns is not counted
// again for a call of the webhook that the API server repeats.
func (e *Evaluator) Count(origin *Origin, found Violations) {
	e.CountDenials(origin, found)
	if e.Counter == nil || origin == nil || len(found.warned) == 0 && found.dryRun == nil || IsRepeated(origin.req) {
		return
	}
	example := origin.example()
	for _, v := range found.warned {
		e.count(v, example)
	}
	if found.dryRun != nil {
		found.dryRun.count(example, e.count)
	}
}

// CountDenials counts the refusal of an object.
func (e *Evaluator) CountDenials(origin *Origin, found Violations) {
	if e.Counter == nil || origin == nil || len(found.denied) == 0 {
		return
	}
	example := origin.example()
	for _, v := range found.denied {
		e.count(v, example)
	}
}

func (e *Evaluator) count(v violation, example v1alpha1.PolicyExample) {
	// A response can be cached since an earlier generation with the same content.
	if set, err := e.Engine.Current(); err == nil {
		if current, ok := set.Version(v.version.Policy); ok && current.Digest == v.version.Digest {
			v.version = current
		}
	}
	example.Message, example.Changes = v.message, v.changes
	if v.only {
		e.Counter.AddExample(v.version, example)
		return
	}
	e.Counter.Add(v.version, example)
	violationsTotal.WithLabelValues(v.version.Policy).Inc()
}

// WithDenied returns the violations with those for which other parts of the same object are refused, each policy once.
func (v Violations) WithDenied(more Violations) Violations {
	for _, other := range more.denied {
		if !slices.ContainsFunc(v.denied, func(known violation) bool { return known.version == other.version }) {
			v.denied = append(slices.Clip(v.denied), other)
		}
	}
	return v
}

// DeniedBy returns the violations of the policies in force that refuse an object.
func (e *Evaluator) DeniedBy(denials []merge.Finding, object map[string]any) Violations {
	set, err := e.Engine.Current()
	if err != nil || len(denials) == 0 {
		return Violations{}
	}
	return Violations{denied: newViolations(set, denials, object)}
}

// maxViolationMessage is the length of a message in an example, in bytes.
const maxViolationMessage = 256

// Size estimates the memory of the violations, in bytes.
func (v Violations) Size() int {
	return (len(v.denied) + len(v.warned)) * (maxViolationMessage + 128)
}

// newViolations returns a violation for each policy with findings, with the first one.
func newViolations(set *engine.Set, findings []merge.Finding, object map[string]any) []violation {
	var all []violation
	for _, finding := range findings {
		version, ok := set.Version(finding.Policy)
		if !ok || slices.ContainsFunc(all, func(v violation) bool { return v.version == version }) {
			continue
		}
		finding.Policy, finding.Fix = "", ""
		message := v1alpha1.TruncateText(decision.Redact(v1alpha1.TruncateText(decision.FormatMessage(finding), maxViolationMessage), object), maxViolationMessage)
		all = append(all, violation{version: version, message: message})
	}
	return all
}

// maxWaitingExamples limits the objects that wait for the result of the policies in DryRun.
const maxWaitingExamples = 256

// dryRunViolations are the violations of the policies in DryRun, which are evaluated after the answer. Objects that come
// before wait for the result.
type dryRunViolations struct {
	mu      sync.Mutex
	done    bool
	found   []violation
	waiting []v1alpha1.PolicyExample
	// partial: not all policies were evaluated.
	partial bool
}

// IsPartial reports whether a policy in DryRun was not evaluated. A cached response is then not used again.
func (v Violations) IsPartial() bool {
	if v.dryRun == nil {
		return false
	}
	v.dryRun.mu.Lock()
	defer v.dryRun.mu.Unlock()
	return v.dryRun.partial
}

// drop records that the policies are not evaluated, for the objects that wait.
func (d *dryRunViolations) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	dryRunsDropped.Add(float64(max(1, len(d.waiting))))
	d.done, d.partial, d.waiting = true, true, nil
}

// count counts the violations of an object, as soon as they are known.
func (d *dryRunViolations) count(example v1alpha1.PolicyExample, count func(violation, v1alpha1.PolicyExample)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.done:
		for _, v := range d.found {
			count(v, example)
		}
	case len(d.waiting) < maxWaitingExamples:
		d.waiting = append(d.waiting, example)
	default:
		dryRunsDropped.Inc()
	}
}

// finish sets the violations, and counts those of the objects that wait.
func (d *dryRunViolations) finish(found []violation, complete bool, count func(violation, v1alpha1.PolicyExample)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done, d.partial, d.found = true, !complete, found
	for _, example := range d.waiting {
		for _, v := range found {
			count(v, example)
		}
	}
	d.waiting = nil
}

var violationsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_policy_violations_total",
	Help: "Objects that a policy refused, or would have refused in Warn or DryRun.",
}, []string{"policy"})

func init() { metrics.Registry.MustRegister(violationsTotal) }

// StartViolations creates the series of policies in force with the value 0, so that a query of the increase counts the first
// violation too.
func StartViolations(policies []engine.Version) {
	for i := range policies {
		violationsTotal.WithLabelValues(policies[i].Policy)
	}
}
