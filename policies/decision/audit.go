// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/merge"
)

// AuditResult is what a policy would do with an existing object, if it were created now.
type AuditResult string

// The results of an audit, by decreasing severity.
const (
	// AuditDenied: the policy would refuse the object.
	AuditDenied AuditResult = "Denied"
	// AuditFailed: the policy could not be evaluated.
	AuditFailed AuditResult = "Failed"
	// AuditChanged: the object lacks what the policy requires by an override, node requirements or a removal.
	AuditChanged AuditResult = "Changed"
	// AuditWarned: the policy would warn.
	AuditWarned AuditResult = "Warned"
)

// severity orders the results of one policy for one object.
var severity = map[AuditResult]int{AuditDenied: 4, AuditFailed: 3, AuditChanged: 2, AuditWarned: 1}

// IsViolation reports whether the object would not be admitted as it is.
func (r AuditResult) IsViolation() bool { return r == AuditDenied || r == AuditChanged }

// AuditFinding is what one policy finds about an existing object.
type AuditFinding struct {
	// Policy is the name of the policy; empty if the object is refused before any policy is evaluated, or
	// because policies conflict.
	Policy      string
	Enforcement v1alpha1.Enforcement
	Result      AuditResult
	// Message is the first finding of that result, with its field, and Fix says how to correct the object. More is the
	// number of the policy's other findings.
	Message, Fix string
	More         int
	// Changes are the paths that the policy would change, without their values.
	Changes []string
}

// Audit evaluates a pod or a Job that exists, as if it were created now, under all policies, also those in DryRun. It enforces
// what [Evaluator.Validate] enforces: defaults and appended elements are no findings. Nor are denials that depend on the time or
// the present use. The result has at most one finding for each policy, sorted by policy.
func (e *Evaluator) Audit(ctx context.Context, request Request) ([]AuditFinding, error) {
	request.isExisting, request.Operation = true, v1alpha1.OperationCreate
	object, result, err := request.decode()
	if err != nil {
		return nil, err
	}
	findings := auditFindings{object: result.Original}
	if len(result.Denials) > 0 {
		findings.addAll(&result)
		return findings.sorted(), nil
	}
	changes, err := e.evaluate(ctx, &request, object, &result)
	if err != nil {
		return nil, err
	}
	findings.addAll(&result)
	merged, err := merge.ApplyRequired(result.Original, changes, e.Cluster)
	for _, denial := range denialsOfMerge(err) {
		findings.add(AuditFinding{Enforcement: v1alpha1.EnforcementDeny, Result: AuditDenied}, denial)
	}
	if err == nil {
		findings.addChanges(&result, merged)
	}
	if err := e.auditDryRun(ctx, &request, &result, &findings); err != nil {
		return nil, err
	}
	return findings.sorted(), nil
}

// AuditTemplate evaluates a pod template of an object that exists, as [Evaluator.MutateTemplate] does for one that is created, and
// under the policies in DryRun too. What policies change is no finding, since they change the template's pods.
func (e *Evaluator) AuditTemplate(ctx context.Context, t workloadkind.Template, namespace string, request Request) ([]AuditFinding, error) {
	request.isExisting = true
	result, err := e.MutateTemplate(ctx, t, namespace, request)
	if err != nil {
		return nil, err
	}
	findings := auditFindings{object: result.Original}
	findings.addAll(&result)
	if result.Input == nil {
		return findings.sorted(), nil
	}
	dryRun, err := request.Policies.EvaluateDryRun(ctx, *result.Input)
	if err != nil {
		return nil, err
	}
	findings.addAll(&Result{
		Denials: fieldsOfObject(t, dryRun.Denials), Warnings: fieldsOfObject(t, dryRun.Warnings), Evaluations: dryRun.Evaluations,
	})
	return findings.sorted(), nil
}

// auditDryRun adds the findings of the policies in DryRun, each as if it were the only one.
func (e *Evaluator) auditDryRun(ctx context.Context, request *Request, result *Result, findings *auditFindings) error {
	if result.Input == nil {
		return nil // the object was refused before
	}
	outcome, err := request.Policies.EvaluateDryRun(ctx, *result.Input)
	if err != nil {
		return err
	}
	evaluated := Result{Denials: outcome.Denials, Warnings: outcome.Warnings, Evaluations: outcome.Evaluations}
	findings.addAll(&evaluated)
	for i := range outcome.Changes {
		if merged, err := merge.ApplyRequired(result.Original, outcome.Changes[i:i+1], e.Cluster); err == nil {
			findings.addChanges(&evaluated, merged)
		}
	}
	return nil
}

// denialsOfMerge returns the denials for an error of the merge, if there is one.
func denialsOfMerge(err error) []merge.Finding {
	if err == nil {
		return nil
	}
	return denialsForMergeError(err)
}

// auditFindings collects the findings about one object: one for each policy.
type auditFindings struct {
	object   map[string]any
	byPolicy map[string]AuditFinding
}

// addAll adds the denials and warnings of an evaluation.
func (f *auditFindings) addAll(result *Result) {
	evaluations := make(map[string]engine.Evaluation, len(result.Evaluations))
	for _, evaluation := range result.Evaluations {
		if !evaluation.Rendering && !evaluation.TypeResolution {
			evaluations[evaluation.Policy] = evaluation
		}
	}
	for _, denial := range result.Denials {
		f.add(newAuditFinding(evaluations, denial, AuditDenied), denial)
	}
	for _, warning := range result.Warnings {
		if warning.Policy == "" {
			continue // a policy overrides a value: the finding is that it changes the object
		}
		found := AuditWarned
		if evaluations[warning.Policy].Result == engine.ResultDenied {
			found = AuditDenied // by a policy in Warn
		}
		f.add(newAuditFinding(evaluations, warning, found), warning)
	}
	for policy, evaluation := range evaluations {
		if _, found := f.byPolicy[policy]; !found && !evaluation.IsComplete() {
			f.add(newAuditFinding(evaluations, merge.Finding{Policy: policy}, AuditFailed), merge.Finding{
				Policy: policy, Message: "the policy was not evaluated: " + string(evaluation.Result),
			})
		}
	}
}

func newAuditFinding(evaluations map[string]engine.Evaluation, finding merge.Finding, found AuditResult) AuditFinding {
	evaluation, ok := evaluations[finding.Policy]
	if ok && !evaluation.IsComplete() {
		found = AuditFailed
	}
	return AuditFinding{Policy: finding.Policy, Enforcement: cmp.Or(evaluation.Enforcement, v1alpha1.EnforcementDeny), Result: found}
}

// maxAuditMessage is the length of a message in bytes, as that of an example in a Policy's status.
const maxAuditMessage = 256

// maxAuditChanges limits the paths of a finding.
const maxAuditChanges = 10

// add adds a finding, unless the policy has a more severe one.
func (f *auditFindings) add(found AuditFinding, finding merge.Finding) {
	known, ok := f.byPolicy[found.Policy]
	if ok && severity[known.Result] >= severity[found.Result] {
		if known.Result == found.Result && known.Message != "" {
			known.More++
			f.byPolicy[found.Policy] = known
		}
		return
	}
	finding.Policy, found.Fix, finding.Fix = "", f.redact(finding.Fix), ""
	found.Message, found.Changes = f.redact(FormatMessage(finding)), known.Changes
	if f.byPolicy == nil {
		f.byPolicy = make(map[string]AuditFinding)
	}
	f.byPolicy[found.Policy] = found
}

// redact shortens a text, and replaces what it quotes of the object's variables and arguments.
func (f *auditFindings) redact(text string) string {
	return v1alpha1.TruncateText(Redact(v1alpha1.TruncateText(text, maxAuditMessage), f.object), maxAuditMessage)
}

// addChanges adds the paths that policies still change. The creator of an existing object is not known.
func (f *auditFindings) addChanges(result *Result, merged merge.Result) {
	for policy, paths := range merged.ChangedPaths {
		paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return path == createdByPath })
		if len(paths) == 0 {
			continue
		}
		slices.Sort(paths)
		found := AuditFinding{Policy: policy, Enforcement: v1alpha1.EnforcementDeny, Result: AuditChanged}
		for _, evaluation := range result.Evaluations {
			if evaluation.Policy == policy {
				found.Enforcement = evaluation.Enforcement
			}
		}
		f.add(found, merge.Finding{Policy: policy, Message: "the object lacks what the policy sets", Field: paths[0]})
		known := f.byPolicy[policy]
		for _, path := range paths[:min(len(paths), maxAuditChanges)] {
			known.Changes = append(known.Changes, v1alpha1.TruncateText(path, maxAuditPath))
		}
		f.byPolicy[policy] = known
	}
}

// maxAuditPath is the length of a path in bytes.
const maxAuditPath = 128

func (f *auditFindings) sorted() []AuditFinding {
	all := make([]AuditFinding, 0, len(f.byPolicy))
	for _, policy := range slices.Sorted(maps.Keys(f.byPolicy)) {
		all = append(all, f.byPolicy[policy])
	}
	return all
}
