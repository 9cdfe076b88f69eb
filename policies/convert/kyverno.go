// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"fmt"
	"strings"

	"sluice.dev/api/v1alpha1"
)

const kyvernoGroup = "kyverno.io"

// Kyverno converts the validate and mutate rules of ClusterPolicies and Policies. The rules of one policy with the same effect
// become one policy.
func Kyverno(ctx context.Context, files []File, checker Checker) (*Result, error) {
	k := &kyverno{conversion: newConversion(), byRule: make(map[string]*draft)}
	documents := k.readDocuments(files)
	for i := range documents {
		d := &documents[i]
		switch group := d.group(); {
		case group == kyvernoGroup && (d.kind() == "ClusterPolicy" || d.kind() == "Policy"):
			k.addPolicy(d)
		case group == "policies.kyverno.io":
			k.entry(d.file, d.label()).refuse("", "its rules are CEL, which policies do not have",
				"write them in Rego, or as a ValidatingAdmissionPolicy of Kubernetes")
		case strings.HasSuffix(group, kyvernoGroup) && d.kind() != "Test":
			k.entry(d.file, d.label()).refuse("", "the kind has no counterpart", "see the page about Kyverno")
		}
	}
	k.addTests(documents)
	return k.finish(ctx, checker)
}

// kyverno is the conversion of one directory.
type kyverno struct {
	*conversion
	byRule map[string]*draft // by POLICY/RULE
}

// kyvernoModule is a module that grows by the rules of a policy.
type kyvernoModule struct {
	*regoModule
	draft *draft
}

// addPolicy adds the drafts of a policy: one for each effect of its rules.
func (k *kyverno) addPolicy(d *sourceObject) {
	e := k.entry(d.file, d.label())
	spec := object(d.content["spec"])
	modules := make(map[string]*kyvernoModule)
	var order []*kyvernoModule
	for i, raw := range list(spec["rules"]) {
		rule := kyvernoRule{content: object(raw), entry: e, name: text(at(raw, "name")), policy: d}
		rule.part = fmt.Sprintf("spec.rules[%d] %s", i, rule.name)
		enforcement, suffix := rule.enforcement(spec), ""
		if rule.content["mutate"] != nil {
			suffix = rule.name // a policy has one object of defaults and one of overrides
		}
		attempt := newRegoModule("")
		rule.convert(attempt)
		if rule.refused {
			continue
		}
		key := fmt.Sprint(enforcement, rule.kind, suffix)
		module := modules[key]
		if module == nil {
			if suffix == "" && len(order) > 0 {
				suffix = strings.ToLower(string(enforcement))
			}
			module = k.newModule(d, e, enforcement, suffix)
			module.draft.policy.Spec.Match.Kinds = []string{rule.kind}
			modules[key] = module
			order = append(order, module)
		}
		// Written again, with numbers that the module has not yet.
		rule.convert(module.regoModule)
		module.draft.examples = append(module.draft.examples, rule.examples...)
		if rule.changed != nil {
			module.draft.changed = rule.changed
		}
		k.byRule[d.name()+"/"+rule.name] = module.draft
	}
	for _, module := range order {
		module.draft.policy.Spec.Rego = module.text()
		k.add(module.draft)
	}
	if len(list(spec["rules"])) == 0 {
		e.refuse("spec.rules", "it has no rules", "remove it")
	}
}

// newModule returns the module and the draft for the rules of one effect.
func (k *kyverno) newModule(d *sourceObject, e *Entry, enforcement v1alpha1.Enforcement, suffix string) *kyvernoModule {
	name := d.name()
	if suffix != "" {
		name += "-" + suffix
	}
	policy := v1alpha1.Policy{}
	policy.Name, policy.Spec.Enforcement = name, enforcement
	return &kyvernoModule{newRegoModule(identifier(policyName(name))), &draft{policy: policy, entry: e}}
}

// kyvernoRule is the conversion of one rule.
type kyvernoRule struct {
	content  map[string]any
	entry    *Entry
	policy   *sourceObject
	name     string
	part     string // for gaps
	kind     string // of the objects that it applies to: Pod or Job.batch
	examples []example
	changed  any
	refused  bool
}

// refuse adds a gap of the rule.
func (r *kyvernoRule) refuse(path, reason, fix string) {
	r.refused = true
	if path != "" {
		path = ": " + path
	}
	r.entry.refuse(r.part+path, reason, fix)
}

// enforcement returns the effect of the rule. A mutation always has its effect.
func (r *kyvernoRule) enforcement(spec map[string]any) v1alpha1.Enforcement {
	if r.content["mutate"] != nil {
		return v1alpha1.EnforcementDeny
	}
	action := text(at(r.content, "validate", "failureAction"))
	if action == "" {
		action = text(spec["validationFailureAction"])
	}
	switch {
	case strings.EqualFold(action, "Enforce"):
		if len(list(spec["validationFailureActionOverrides"]))+len(list(at(r.content, "validate", "failureActionOverrides"))) > 0 {
			r.entry.note("failureActionOverrides are left out: the policy has one enforcement; copy it with spec.match.projects for another")
		}
		return v1alpha1.EnforcementDeny
	case spec["emitWarning"] == true:
		return v1alpha1.EnforcementWarn
	}
	return v1alpha1.EnforcementDryRun
}

// convert adds the rule to a module, or a gap to the entry.
func (r *kyvernoRule) convert(m *regoModule) {
	for _, kind := range []string{"generate", "verifyImages"} {
		if r.content[kind] != nil {
			r.refuse("", kind+" has no counterpart", "keep this rule in Kyverno, or use an operator of its own")
			return
		}
	}
	for i, one := range list(r.content["context"]) {
		r.refuse(fmt.Sprintf("context[%d] %s", i, text(at(one, "name"))), "policies call no API and read no ConfigMap",
			"put the values into spec.parameters")
	}
	if unknown := unknownKeys(r.content, "name", "match", "exclude", "preconditions", "validate", "mutate", "context", "celPreconditions",
		"skipBackgroundRequests", "reportProperties"); len(unknown) > 0 {
		r.refuse(unknown[0], "the field is unknown", "remove it")
	}
	if r.content["celPreconditions"] != nil {
		r.refuse("celPreconditions", "they are CEL, which policies do not have", "write them as preconditions")
	}
	if r.refused {
		return
	}
	r.examples = nil
	m.comment(fmt.Sprintf("The rule %s.", r.name))
	scope := r.match(m)
	switch {
	case r.content["validate"] != nil && r.content["mutate"] == nil:
		r.convertValidate(m, scope, object(r.content["validate"]))
	case r.content["mutate"] != nil && r.content["validate"] == nil:
		r.convertMutate(m, scope, object(r.content["mutate"]))
	default:
		r.refuse("", "it has neither validate nor mutate", "remove it")
	}
}

// convertValidate adds the denial of a validate rule.
func (r *kyvernoRule) convertValidate(m *regoModule, scope string, validate map[string]any) {
	message, arguments := r.message(m, text(validate["message"]))
	finding := fmt.Sprintf("msg := %s", literal(message))
	if len(arguments) > 0 {
		finding = fmt.Sprintf("msg := sprintf(%s, [%s])", literal(message), strings.Join(arguments, ", "))
	}
	deny := func(condition string) {
		m.rule("deny contains msg", scope, condition, finding)
	}
	for _, kind := range []string{"podSecurity", "cel", "manifests", "foreach", "assert"} {
		if validate[kind] != nil {
			r.refuse("validate."+kind, "it has no counterpart", map[string]string{
				"podSecurity": "label the namespaces of projects with pod-security.kubernetes.io/enforce",
				"cel":         "write it in Rego", "manifests": "keep it in Kyverno",
				"foreach": "write it as a pattern of the list, or in Rego", "assert": "write it in Rego",
			}[kind])
			return
		}
	}
	switch {
	case validate["pattern"] != nil:
		p := &patternWriter{rule: r, module: m}
		check := p.element(validate["pattern"], "")
		deny(fmt.Sprintf("%s(input.object) == \"fail\"", check))
		r.addPatternExample(validate["pattern"])
	case validate["anyPattern"] != nil:
		// The rule is skipped if one pattern is: only when all patterns fail the object is refused.
		var conditions []string
		for _, pattern := range list(validate["anyPattern"]) {
			p := &patternWriter{rule: r, module: m}
			conditions = append(conditions, fmt.Sprintf("%s(input.object) == \"fail\"", p.element(pattern, "")))
			r.addPatternExample(pattern)
		}
		if len(conditions) == 0 {
			r.refuse("validate.anyPattern", "it has no patterns", "remove the rule")
			return
		}
		deny(strings.Join(conditions, "\n\t"))
	case validate["deny"] != nil:
		conditions := at(validate["deny"], "conditions")
		if conditions == nil {
			deny("")
			return
		}
		deny(r.conditions(m, "validate.deny.conditions", conditions))
	default:
		r.refuse("validate", "it has no pattern, anyPattern or deny", "remove the rule")
	}
}

// addPatternExample adds a pod that has the values of a pattern.
func (r *kyvernoRule) addPatternExample(pattern any) {
	if example, ok := examplePatternPod(pattern); ok {
		r.examples = append(r.examples, example)
	}
}

// message returns the message of a rule as a format with its arguments.
func (r *kyvernoRule) message(m *regoModule, message string) (format string, arguments []string) {
	if message == "" {
		return "the rule " + r.name + " of the policy " + r.policy.name() + " is not met", nil
	}
	if !strings.Contains(message, "{{") {
		return strings.TrimSpace(message), nil
	}
	var b strings.Builder
	for rest := message; ; {
		before, after, found := strings.Cut(rest, "{{")
		b.WriteString(strings.ReplaceAll(before, "%", "%%"))
		if !found {
			break
		}
		expression, after, closed := strings.Cut(after, "}}")
		value, ok := r.variable(m, strings.TrimSpace(expression))
		if !closed || !ok {
			r.entry.note("%s: the message is without the variable %s, which has no counterpart", r.part, strings.TrimSpace(expression))
			b.WriteString("(" + strings.ReplaceAll(strings.TrimSpace(expression), "%", "%%") + ")")
		} else {
			b.WriteString("%v")
			arguments = append(arguments, value)
		}
		rest = after
	}
	return strings.TrimSpace(b.String()), arguments
}
