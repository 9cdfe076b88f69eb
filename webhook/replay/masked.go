// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/decision"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
	"sluice.dev/webhook/decisionlog"
)

// observed are the results of the policies for an object and its templates.
type observed struct {
	inputs  []*engine.Input
	results []decision.Result
}

func (o *observed) add(result *decision.Result) {
	if result.Input != nil {
		o.inputs = append(o.inputs, result.Input)
		o.results = append(o.results, *result)
	}
}

// otherData returns the first name of data that the policies read and that the record does not have with the same digest; "" if there
// is none.
func (o *observed) otherData(set *engine.Set, record *decisionlog.Record) string {
	for _, in := range o.inputs {
		digests := set.DataDigests(record.Namespace, in.Subject)
		for _, name := range slices.Sorted(maps.Keys(digests)) {
			if record.Input.Data[name] != digests[name] {
				return name
			}
		}
	}
	return ""
}

// readsMasked returns the policies that read what is masked in a record, or change it, and why the decision is not repeated; "" if
// none does.
func (o *observed) readsMasked(set *engine.Set, record *decisionlog.Record) (policies []string, reason string) {
	for _, in := range o.inputs {
		other := *in
		other.Object = document.New(withOtherTexts(in.Object.Value()))
		other.Review = document.New(withOtherTexts(in.Review.Value()))
		other.Namespace = document.New(withOtherTexts(in.Namespace.Value()))
		policies = append(policies, set.Distinguishing(*in, other)...)
	}
	if len(policies) > 0 {
		slices.Sort(policies)
		policies = slices.Compact(policies)
		return policies, "policy " + strings.Join(policies, ", ") + " reads what is masked: " + strings.Join(generalizeAll(record.Masked), ", ")
	}
	for i := range o.results {
		result := &o.results[i]
		if len(result.Merged.ChangedPaths) == 0 || result.Merged.Object == nil {
			continue
		}
		if countMarkers(result.Merged.Object) < countMarkers(result.Original) {
			for policy := range result.Merged.ChangedPaths {
				policies = append(policies, policy)
			}
			slices.Sort(policies)
			return policies, "a policy replaces or removes what is masked"
		}
	}
	return nil, ""
}

// withOtherTexts returns a value in which each masked text is another one.
func withOtherTexts(value any) any {
	switch value := value.(type) {
	case string:
		if decisionlog.IsMarker(value) {
			return value + " and otherwise"
		}
	case []any:
		list := make([]any, len(value))
		for i := range value {
			list[i] = withOtherTexts(value[i])
		}
		return list
	case map[string]any:
		fields := make(map[string]any, len(value))
		for key, field := range value {
			fields[key] = withOtherTexts(field)
		}
		return fields
	}
	return value
}

func countMarkers(value any) int {
	count := 0
	switch value := value.(type) {
	case string:
		if decisionlog.IsMarker(value) {
			count++
		}
	case []any:
		for _, element := range value {
			count += countMarkers(element)
		}
	case map[string]any:
		for _, field := range value {
			count += countMarkers(field)
		}
	}
	return count
}

// contentFields are the fields whose texts only policies read. Sluice itself decides on other fields of a pod.
var contentFields = []string{
	"env", "args", "command", "annotations", "httpHeaders", "volumeAttributes", "flexVolume", "rayStartParams", "entrypoint", "runtimeEnvYAML",
	"serveConfigV2", "parameters", "withItems", "source", "manifest", "http",
}

// firstReadBySluice returns the first masked place that Sluice itself may read, and whether there is one.
func firstReadBySluice(record *decisionlog.Record) (string, bool) {
	at := slices.IndexFunc(record.Masked, func(pointer string) bool { return isReadBySluice(record, pointer) })
	if at < 0 {
		return "", false
	}
	return record.Masked[at], true
}

func isReadBySluice(record *decisionlog.Record, pointer string) bool {
	if strings.HasPrefix(pointer, "/request/userInfo/extra/") {
		return false
	}
	steps := decisionlog.SplitPointer(pointer)
	field := slices.IndexFunc(steps, func(step string) bool { return slices.Contains(contentFields, step) })
	if field < 0 || steps[0] == "request" {
		return true
	}
	below := steps[field+1:]
	switch steps[field] {
	case "annotations":
		return len(below) != 1 || strings.HasPrefix(below[0], "sluice.dev/") || workload.IsRequestAnnotation(below[0])
	case "env":
		if len(below) != 2 || below[1] != "value" {
			return true
		}
		var path []string
		for _, step := range append(slices.Clone(steps[1:len(steps)-1]), "name") {
			path = append(path, gjson.Escape(step))
		}
		source := record.Input.Object
		if steps[0] == "oldObject" {
			source = record.Input.OldObject
		}
		return gjson.GetBytes(source, strings.Join(path, ".")).Str == v1alpha1.EnvRunAIGPUMemoryLimit
	}
	return false
}

// maxPlaces is the number of places that a reason names.
const maxPlaces = 4

// generalizeAll returns places without indexes, each once.
func generalizeAll(pointers []string) []string {
	places := make([]string, len(pointers))
	for i, pointer := range pointers {
		places[i] = generalize(pointer)
	}
	slices.Sort(places)
	places = slices.Compact(places)
	if len(places) > maxPlaces {
		places = append(places[:maxPlaces], fmt.Sprintf("and %d more", len(places)-maxPlaces))
	}
	return places
}

// generalize returns a place with * instead of indexes.
func generalize(pointer string) string {
	steps := strings.Split(pointer, "/")
	for i, step := range steps {
		if _, err := strconv.Atoi(step); err == nil {
			steps[i] = "*"
		}
	}
	return strings.Join(steps, "/")
}
