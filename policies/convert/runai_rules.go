// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/api/v1alpha1"
)

// runaiWriter writes the policy of one document.
type runaiWriter struct {
	entry      *Entry
	policy     v1alpha1.Policy
	conditions []string
	module     *regoModule
	defaults   any
	overrides  any
	pods       []example
	usesGPUs   bool
}

func newRunaiWriter(e *Entry, name string, workloadType v1alpha1.WorkloadType) *runaiWriter {
	w := &runaiWriter{entry: e, module: newRegoModule(identifier(policyName(name)))}
	w.policy.Name = name
	w.policy.Spec.Enforcement = v1alpha1.EnforcementDeny
	w.policy.Spec.Match.Kinds = []string{"Pod"}
	if workloadType != "" {
		w.conditions = append(w.conditions, fmt.Sprintf("input.workload.type == %q", workloadType))
		w.pods = append(w.pods, example{"of the type " + string(workloadType), examplePod(metadataWith("labels",
			map[string]any{v1alpha1.LabelWorkloadType: string(workloadType)}))})
	}
	return w
}

// addField adds the default and the rules of one field.
func (w *runaiWriter) addField(fieldPath string, value any, hasValue bool, rules map[string]any) {
	field, ok := runaiFields[fieldPath]
	if !ok {
		w.noCounterpart(fieldPath)
		return
	}
	if unknown := unknownKeys(rules, "canEdit", "required", "min", "max", "step", "options"); len(unknown) > 0 {
		w.entry.refuse(fieldPath+"."+unknown[0], "the rule has no counterpart", "write it in Rego")
	}
	locked := rules["canEdit"] == false
	if hasValue {
		w.setDefault(fieldPath, &field, value, locked)
	}
	if locked && !hasValue {
		w.forbid(&field)
	}
	if rules["required"] == true && !hasValue {
		w.demand(&field)
	}
	w.compare(fieldPath, &field, "max", ">", rules["max"], "above %v")
	w.compare(fieldPath, &field, "min", "<", rules["min"], "below %v")
	w.step(fieldPath, &field, rules)
	w.options(fieldPath, &field, rules["options"])
}

// setDefault adds a default, or an override if it cannot be edited.
func (w *runaiWriter) setDefault(fieldPath string, field *runaiField, value any, locked bool) {
	if text, ok := value.(string); ok && field.values[strings.ToLower(text)] != "" {
		value = field.values[strings.ToLower(text)]
	}
	if field.part == nil {
		w.entry.refuse(fieldPath, fmt.Sprintf("a policy sets no default of %s", field.describe),
			"demand it of the author, or set it where workloads are submitted")
		return
	}
	if locked {
		w.overrides = mergeParts(w.overrides, field.part(value))
	} else {
		w.defaults = mergeParts(w.defaults, field.part(value))
	}
}

// deny adds a denial. The conditions have value, and for a field of containers also c.
func (w *runaiWriter) deny(field *runaiField, message, fix string, arguments []string, conditions ...string) {
	scope := []string{"in_scope"}
	if len(w.conditions) == 0 {
		scope = nil
	}
	if field.perContainer {
		message = "container %s: " + message
		arguments = append([]string{"c.name"}, arguments...)
		scope = append(scope, "some c in input.object.spec.containers")
	}
	if strings.Contains(field.value, "gpus_requested") {
		w.usesGPUs = true
	}
	finding := fmt.Sprintf("{\"msg\": %s, \"fix\": %s}", literal(message), literal(fix))
	if len(arguments) > 0 {
		finding = fmt.Sprintf("{\"msg\": sprintf(%s, [%s]), \"fix\": %s}", literal(message), strings.Join(arguments, ", "), literal(fix))
	} else {
		finding = strings.ReplaceAll(finding, "%%", "%")
	}
	w.module.rule("deny contains "+finding, append(scope, conditions...)...)
}

// hasForm returns the condition that the pod's GPU request is what the field is about; empty for other fields.
func (f *runaiField) hasForm() string {
	if f.form == "" {
		return ""
	}
	return fmt.Sprintf("input.workload.form == %q", f.form)
}

// forbid adds the denial of any value of a field that cannot be edited and has no default.
func (w *runaiWriter) forbid(field *runaiField) {
	conditions := []string{field.hasForm(), "value := " + field.value, `not value in [null, "", 0, false]`}
	w.deny(field, field.describe+" cannot be set here", "leave it out", nil, conditions...)
}

// demand adds the denial of a missing value.
func (w *runaiWriter) demand(field *runaiField) {
	if field.form != "" {
		w.deny(field, field.describe+" is required", "request GPUs by it", nil, fmt.Sprintf("input.workload.form != %q", field.form))
		return
	}
	w.deny(field, field.describe+" is required", "set it", nil, "value := "+field.value, `value in [null, "", 0]`)
}

// compare adds the denial of a value beyond a limit.
func (w *runaiWriter) compare(fieldPath string, field *runaiField, name, operator string, limit any, describe string) {
	if limit == nil {
		return
	}
	quantity, err := resource.ParseQuantity(scalarText(limit))
	if err != nil {
		w.entry.refuse(fieldPath+"."+name, fmt.Sprintf("%v is no number or quantity", limit), "correct it")
		return
	}
	number := quantity.AsDec().String()
	if field.unit != 1 {
		rational, ok := new(big.Rat).SetString(number)
		if !ok {
			return
		}
		number = rational.Quo(rational, big.NewRat(field.unit, 1)).FloatString(3)
	}
	written := scalarText(limit)
	fix := "request at most " + written
	if operator == "<" {
		fix = "request at least " + written
	}
	amount := w.module.use("amount")
	w.deny(field, field.describe+" is %v, "+fmt.Sprintf(describe, strings.ReplaceAll(written, "%", "%%")), fix, []string{"value"},
		field.hasForm(), "value := "+field.value, "value != null", w.onlyRequested(field, operator), fmt.Sprintf("%s(value) %s %s", amount,
			operator, number))
}

// onlyRequested returns the condition that a pod without GPUs is not below a minimum, since the limit is about those that request
// some; empty for other fields.
func (w *runaiWriter) onlyRequested(field *runaiField, operator string) string {
	if operator == "<" && (field.value == "input.workload.devices" || field.value == "gpus_requested") {
		return "value != 0"
	}
	return ""
}

// step adds the denial of a value that is not a number of steps above the minimum.
func (w *runaiWriter) step(fieldPath string, field *runaiField, rules map[string]any) {
	if rules["step"] == nil {
		return
	}
	step, ok := new(big.Rat).SetString(scalarText(rules["step"]))
	low := new(big.Rat)
	if minimum := rules["min"]; minimum != nil && ok {
		_, ok = low.SetString(scalarText(minimum))
	}
	if !ok || step.Sign() <= 0 || field.unit != 1 {
		w.entry.refuse(fieldPath+".step", fmt.Sprintf("%v is no step from %v", rules["step"], rules["min"]), "correct it")
		return
	}
	// Thousandths are whole numbers, of which there is a remainder.
	thousandths := func(of *big.Rat) string {
		return new(big.Rat).Mul(of, big.NewRat(1000, 1)).FloatString(0)
	}
	w.deny(field, fmt.Sprintf("%s is %%v, and must be %s and steps of %s above it", field.describe, low.RatString(), step.RatString()),
		"choose one of these", []string{"value"},
		field.hasForm(), "value := "+field.value, "value != null", w.onlyRequested(field, "<"),
		fmt.Sprintf("(round(%s(value) * 1000) - %s) %% %s != 0", w.module.use("amount"), thousandths(low), thousandths(step)))
}

// options adds the denial of a value that is not one of a list.
func (w *runaiWriter) options(fieldPath string, field *runaiField, options any) {
	if options == nil {
		return
	}
	var allowed []string
	for _, option := range list(options) {
		value := text(option)
		if value == "" {
			value = scalarTextOf(at(option, "value"))
		}
		if mapped := field.values[strings.ToLower(value)]; mapped != "" {
			value = mapped
		}
		if value != "" && !slices.Contains(allowed, value) {
			allowed = append(allowed, value)
		}
	}
	if len(allowed) == 0 {
		w.entry.refuse(fieldPath+".options", "it has no values", "correct it")
		return
	}
	w.deny(field, field.describe+" is %v, and must be one of "+strings.ReplaceAll(strings.Join(allowed, ", "), "%", "%%"),
		"choose one of these",
		[]string{"value"}, field.hasForm(), "value := "+field.value, "value != null",
		fmt.Sprintf("not sprintf(\"%%v\", [value]) in %s", setLiteral(allowed)))
}

func scalarTextOf(value any) string {
	if value == nil {
		return ""
	}
	return scalarText(value)
}

// text returns the module; empty if it has no rules.
func (w *runaiWriter) text() string {
	if w.module.body.Len() == 0 && w.defaults == nil && w.overrides == nil {
		return ""
	}
	var head strings.Builder
	scope := ""
	if len(w.conditions) > 0 {
		scope = " if in_scope"
		fmt.Fprintf(&head, "in_scope if {\n\t%s\n}\n\n", strings.Join(w.conditions, "\n\t"))
	}
	for _, part := range []struct {
		rule  string
		value any
	}{{"defaults", w.defaults}, {"overrides", w.overrides}} {
		if part.value != nil {
			head.WriteString(part.rule + " := " + literal(part.value) + scope + "\n\n")
		}
	}
	if w.usesGPUs {
		head.WriteString(gpusRequested)
	}
	rego := newRegoModule(w.module.name)
	rego.functions = w.module.functions
	rego.body.WriteString(head.String() + w.module.body.String())
	text := rego.text()
	if formatted, err := formatRego(text, ast.RegoV1, ast.RegoV1); err == nil {
		return formatted
	}
	return text
}

// gpusRequested is the rule with the number of GPUs as Run:ai counts them: a share counts in part.
const gpusRequested = `# gpus_requested: GPUs as Run:ai counts them, a share in part.
gpus_requested := input.workload.devices * input.workload.share if {
	input.workload.form in {"Whole", "Share"}
} else := input.workload.devices

`

// changed returns the part of a pod that the policy sets.
func (w *runaiWriter) changed() any {
	if w.defaults == nil && w.overrides == nil {
		return nil
	}
	return mergeParts(w.defaults, w.overrides)
}

// examples returns pods of the policy's type, also in the forms that the shared examples have.
func (w *runaiWriter) examples() []example {
	all := slices.Clone(w.pods)
	if len(w.pods) == 0 {
		return all
	}
	labels := object(at(w.pods[0].object, "metadata", "labels"))
	for _, shared := range sharedExamples() {
		metadata := object(shared.object["metadata"])
		metadata["labels"] = mergeParts(metadata["labels"], labels)
		all = append(all, shared)
	}
	return all
}
