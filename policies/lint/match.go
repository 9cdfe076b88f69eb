// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/workbench"
)

// lintMatch finds what has no effect, and names in the match that the folder does not have.
func (p *policyLinter) lintMatch() {
	spec := &p.policy.Spec
	if spec.Enforcement == v1alpha1.EnforcementDryRun && spec.Replaces != "" {
		p.add(noEffect, p.policy.Name, p.fieldPlace("spec", "replaces"), "a policy in DryRun replaces nothing: %s stays in force", spec.Replaces)
	}
	var projects, departments []string
	for i := range p.folder.Projects {
		projects = append(projects, p.folder.Projects[i].Name)
	}
	for i := range p.folder.Departments {
		departments = append(departments, p.folder.Departments[i].Name)
	}
	p.lintNames("projects", spec.Match.Projects, projects)
	p.lintNames("departments", spec.Match.Departments, departments)
}

func (p *policyLinter) lintNames(field string, named, known []string) {
	if len(known) == 0 {
		return
	}
	slices.Sort(known)
	for i, name := range named {
		if !slices.Contains(known, name) {
			p.add(unknownTenant, p.policy.Name, p.fieldPlace("spec", "match", field, strconv.Itoa(i)),
				"spec.match.%s: the folder has no %s, only %s: the policy never matches there", field, name, strings.Join(known, ", "))
		}
	}
}

// tenantKeys are the references to names by which a match selects.
var tenantKeys = map[string]string{"input.project.name": "projects", "input.department.name": "departments"}

// lintScope finds policies for some projects or departments that match all, and rules without effect in DryRun.
func (p *policyLinter) lintScope() {
	if p.policy.Spec.Enforcement == v1alpha1.EnforcementDryRun {
		for _, rule := range p.module.Rules {
			if ruleName(rule) == "warn" {
				p.at(noEffect, rule.Location, "warn has no effect in a policy in DryRun, which returns no warnings: use enforcement Warn")
			}
		}
	}
	match := p.policy.Spec.Match
	if len(match.Projects)+len(match.Departments) > 0 {
		return
	}
	var parameters map[string]json.RawMessage
	if len(p.source.Parameters) > 0 && json.Unmarshal(p.source.Parameters, &parameters) == nil {
		for _, name := range slices.Sorted(maps.Keys(parameters)) {
			if isTenantParameter(name) {
				p.add(broadMatch, p.policy.Name, p.fieldPlace("spec", "parameters", name),
					"spec.parameters.%s selects, but the policy matches the objects of all projects: select with spec.match, "+
						"so that an error of the policy refuses no pod elsewhere", name)
			}
		}
	}
	var first *condition
	for _, rule := range p.module.Rules {
		if !slices.Contains(entryPoints, ruleName(rule)) {
			continue
		}
		conditions := termsOf(rule.Body).conditions(rule.Body)
		at := slices.IndexFunc(conditions, func(c condition) bool { return c.hasValues() && tenantKeys[c.key] != "" })
		if at < 0 {
			return // one of the rules is for all
		}
		if first == nil {
			first = &conditions[at]
		}
	}
	if first != nil {
		p.at(broadMatch, first.expr.Location, "all rules are for some %s only, but the policy matches the objects of all: "+
			"list them in spec.match.%s, so that an error of the policy refuses no pod elsewhere", tenantKeys[first.key], tenantKeys[first.key])
	}
}

// entryPoints are the rules for admitted objects that Sluice evaluates.
var entryPoints = []string{"deny", "violation", "warn", "defaults", "overrides", "nodes", "append", "remove"}

// lintDuration evaluates the policy alone, with the limits of the webhook, on the objects of the cases and on examples, until one
// exceeds the limit. A library is evaluated with the policies that import it.
func (p *policyLinter) lintDuration(ctx context.Context) error {
	if p.source.IsLibrary() {
		return nil
	}
	data, err := p.folder.Data()
	if err != nil {
		p.add(unreadable, p.policy.Name, p.fieldPlace("metadata", "name"), "%v", err)
		return nil
	}
	source := p.source
	source.Enforcement = v1alpha1.EnforcementDeny
	source.Match.Projects, source.Match.Departments = nil, nil
	limits := engine.Limits{Request: time.Minute}.WithDefaults()
	cluster, err := workbench.NewClusterWith(append(p.folder.Libraries(), source), engine.Options{Limits: limits})
	if err != nil {
		return err
	}
	cluster.UseData(data)
	examples, err := check.Examples()
	if err != nil {
		return err
	}
	objects := make([]map[string]any, 0, len(p.folder.Cases)+len(examples))
	for i := range p.folder.Cases {
		objects = append(objects, p.folder.Cases[i].Object)
	}
	for _, object := range append(objects, examples...) {
		request, err := p.folder.ExampleRequest(object, p.policy.Spec.Match)
		if err != nil {
			p.add(unreadable, p.policy.Name, p.fieldPlace("spec", "match", "projects"), "%v", err)
			return nil
		}
		decision, err := cluster.Decide(ctx, request)
		for try := 0; errors.Is(err, engine.ErrBusy) && try < 20; try++ { // other programs use the machine
			decision, err = cluster.Decide(ctx, request)
		}
		if err != nil {
			continue // a case with an object for which no policy is evaluated
		}
		for _, result := range decision.Results {
			for _, evaluation := range result.Evaluations {
				if evaluation.Result == engine.ResultTimedOut {
					p.at(slow, &ast.Location{Row: 1, Col: 1}, "the policy takes longer than %s for %v %s, and the webhook would "+
						"refuse the object: simplify the rules; sluice policy bench shows the time of each policy",
						limits.Evaluation, object["kind"], nameOf(object))
					return nil
				}
			}
		}
	}
	return nil
}

// nameOf returns the name of an object, or the beginning of one to generate.
func nameOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	for _, key := range []string{"name", "generateName"} {
		if name, ok := metadata[key].(string); ok {
			return name
		}
	}
	return "without a name"
}
