// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies"
	"sluice.dev/policies/audit"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/merge"
)

// Cluster evaluates objects as a cluster would in which a set of policies is in force.
type Cluster struct {
	set       *engine.Set
	evaluator decision.Evaluator
}

// evaluationLimits are longer than those of a cluster: the workbench reports durations, and the machine may be busy.
var evaluationLimits = engine.Limits{Evaluation: 5 * time.Second, Request: time.Minute}

// NewCluster compiles policies. The error lists each policy that does not compile, with its problems.
func NewCluster(sources []engine.Source) (*Cluster, error) {
	return NewClusterWith(sources, engine.Options{Limits: evaluationLimits})
}

// NewClusterWith compiles policies with Sluice's libraries and other options; see [NewCluster].
func NewClusterWith(sources []engine.Source, options engine.Options) (*Cluster, error) {
	options.Libraries = policies.Libraries()
	set, reports, err := engine.Compile(sources, options)
	if err != nil {
		return nil, err
	}
	var faults []error
	for _, report := range reports {
		for _, problem := range report.Problems {
			faults = append(faults, problem)
		}
	}
	return &Cluster{set: set}, errors.Join(faults...)
}

// Request is the creation of an object.
type Request struct {
	// Object is a Pod, a Job or another workload with pod templates.
	Object map[string]any
	// Tenant owns the namespace.
	Tenant *decision.Tenant
	// Namespace is the namespace of the tenant's project.
	Namespace string
	// User and Groups are who creates it.
	User   string
	Groups []string
	// Now is the time.
	Now time.Time
}

// Decision is what the policies decide on an object.
type Decision struct {
	// Original is the object as it was written. Object is the object as the cluster would admit it; it has no meaning if there
	// are denials.
	Original, Object map[string]any
	// Effective is Object with its pod templates as the pods that they create will be admitted. The templates themselves stay
	// as they are. It has no meaning if there are denials.
	Effective map[string]any
	// Results are those of the object, or of its templates.
	Results []decision.Result
	// AtThePod says which pods of the object are evaluated only when they are created, and why; empty if there are none.
	AtThePod string

	// denialPrefix is how the first denial begins.
	denialPrefix string
}

// Denials returns why the object is refused; none if it is allowed.
func (d *Decision) Denials() []string {
	texts := d.texts(func(r decision.Result) []merge.Finding { return r.Denials })
	if len(texts) > 0 {
		texts[0] = d.denialPrefix + texts[0]
	}
	return texts
}

// Warnings returns the warnings for the object's author.
func (d *Decision) Warnings() []string {
	return d.texts(func(r decision.Result) []merge.Finding { return r.Warnings })
}

func (d *Decision) texts(findings func(decision.Result) []merge.Finding) []string {
	var texts []string
	for _, result := range d.Results {
		texts = append(texts, messages(findings(result), decision.FormatMessage)...)
	}
	return texts
}

// Decide evaluates a new object. A pod is mutated and then evaluated once more as it would be admitted; a Job is mutated, and
// its template and those of other workloads are evaluated as the pods that they create.
func (c *Cluster) Decide(ctx context.Context, request Request) (*Decision, error) {
	object := unstructured.Unstructured{Object: request.Object}
	kind := object.GroupVersionKind().GroupKind()
	d := &Decision{Original: request.Object, Object: request.Object}
	base := decision.Request{
		Policies: c.set, Tenant: request.Tenant, Operation: v1alpha1.OperationCreate, Now: request.Now,
	}
	review := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: request.Namespace, Name: object.GetName(),
		UserInfo: authenticationv1.UserInfo{Username: request.User, Groups: request.Groups},
	}
	review.Kind.Group, review.Kind.Version, review.Kind.Kind = kind.Group, object.GroupVersionKind().Version, kind.Kind
	var err error
	if base.Review, err = decision.ReviewDocument(review); err != nil {
		return nil, err
	}
	placed := object.DeepCopy()
	placed.SetNamespace(request.Namespace)
	if base.Raw, err = json.Marshal(placed.Object); err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	isPod := kind.Group == "" && kind.Kind == "Pod"
	if base.IsJob = kind.Group == "batch" && kind.Kind == "Job"; isPod || base.IsJob {
		if err := c.decideObject(ctx, d, base); err != nil || isPod || len(d.Denials()) > 0 {
			d.Effective = d.Object
			return d, err
		}
	}
	templates := workloadkind.EvaluatedTemplates(kind, d.Object, request.Tenant.AddedTemplates)
	if len(templates) == 0 {
		return nil, errNotEvaluated(kind)
	}
	known, _ := workloadkind.LookupEvaluated(kind)
	d.AtThePod, d.denialPrefix = known.AtThePod, decision.DenialPrefix(d.Object)
	bodies := make(map[string]map[string]any, len(templates))
	for _, template := range templates {
		ofTemplate := base
		ofTemplate.IsJob, ofTemplate.Owner = false, workload.Owner{Group: kind.Group, Kind: kind.Kind}
		result, err := c.evaluator.MutateTemplate(ctx, template, request.Namespace, ofTemplate)
		if err != nil {
			return nil, err
		}
		d.Results = append(d.Results, result)
		if len(result.Denials) == 0 {
			bodies[template.Path] = decision.TemplateFromPod(template, result.Merged.Object)
		}
	}
	d.Effective = workloadkind.WithTemplates(kind, d.Object, bodies)
	return d, nil
}

// errNotEvaluated returns why no policy is evaluated for an object of a kind.
func errNotEvaluated(kind schema.GroupKind) error {
	known, ok := workloadkind.LookupEvaluated(kind)
	switch {
	case !ok:
		return fmt.Errorf("no policy is evaluated for %s: it is no pod, and has no pod template that Sluice knows",
			cmp.Or(kind.String(), "an object without a kind"))
	case known.AtThePod != "":
		return fmt.Errorf("no policy is evaluated for this %s, only for its pods when they are created: %s", kind, known.AtThePod)
	}
	return fmt.Errorf("no policy is evaluated for this %s: it has no pod template in %s", kind, strings.Join(known.Templates, ", "))
}

// decideObject mutates a pod or a Job and validates the result.
func (c *Cluster) decideObject(ctx context.Context, d *Decision, request decision.Request) error {
	result, err := c.evaluator.Mutate(ctx, request)
	if err != nil {
		return err
	}
	d.Results = append(d.Results, result)
	if len(result.Denials) > 0 {
		return nil
	}
	d.Original, d.Object = result.Original, result.Merged.Object
	if request.Raw, err = json.Marshal(d.Object); err != nil {
		return fmt.Errorf("encode the object: %w", err)
	}
	final, err := c.evaluator.Validate(ctx, request)
	if err != nil {
		return err
	}
	final.Warnings, final.Evaluations = nil, nil // those of the first evaluation
	if len(final.Denials) > 0 {
		d.Results = append(d.Results, final)
	}
	return nil
}

// Auditor returns an auditor of existing objects under the policies.
func (c *Cluster) Auditor(now time.Time) *audit.Auditor {
	return &audit.Auditor{Policies: c.set, Evaluator: &c.evaluator, Now: now}
}

// Explain returns what each rule of a policy did for the object, or the template, of a result.
func (c *Cluster) Explain(ctx context.Context, result *decision.Result, policy string) ([]engine.RuleTrace, error) {
	return c.set.Explain(ctx, *result.Input, policy)
}
