// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Parameter is one thing that may be set of a policy.
type Parameter struct {
	// Name is its field in spec.parameters.
	Name string
	// Kind is what values it has.
	Kind ParameterKind
	// Default is what holds where it is not set.
	Default any
	// Description is what it does, in a phrase.
	Description string
}

// parameterTable has the parameters of each built-in policy that takes any, by name.
var parameterTable = map[string][]Parameter{
	"core.devices": {
		{"allowedCapabilities", capabilityListKind, []string{}, "capabilities that containers may add although others' GPUs can be reached by them"},
		{"allowedHostPaths", pathListKind, []string{}, "directories of nodes that pods may mount, with all below; allow none in which pods can make links"},
		{"refuseEnvFrom", BoolParameter, true, "whether a container with a GPU may take no variables by envFrom without a prefix, since these overrule the device plugin's"},
		{"runtimeClasses", nameListKind, []string{"nvidia", "nvidia-cdi", "nvidia-legacy"}, "runtime classes that are for pods with GPUs only"},
	},
	"core.limits": {
		{"maximumGraceSeconds", secondsKind, 3600, "the most time that a pod with GPUs has to end; it holds them until then, whatever its limit"},
		{"minimumGraceSeconds", secondsKind, 30, "the least time that a pod with GPUs has to end"},
	},
	"core.namespace": {
		{"defaultCPU", quantityKind, "100m", "how much CPU a container requests that says nothing of it, where its project has a quota of CPU"},
		{"defaultMemory", quantityKind, "256Mi", "the same of memory"},
		{"ingressNamespaces", nameListKind, ingressNamespaces, "namespaces, by their names, from which pods of projects are reached; others' pods reach none"},
	},
	"core.priority": {
		{"defaultClass", nameKind, "", "the cluster's PriorityClass with globalDefault; empty where it has none"},
		{"refuseOtherClasses", BoolParameter, false, "whether a GPU pod with another priority class than defaultClass and Sluice's own is refused; else the class is replaced, with a warning"},
	},
	"core.quota": {
		{"allowClaims", BoolParameter, false, "whether pods may have resource claims, where claims are never of GPUs"},
	},
	"schedulers.kai": {
		{"krm", adoptOrOwnKind, "own", "whether Sluice makes KAI-Scheduler's queues itself, or declares projects and departments to kai-resource-management, which then makes them"},
	},
}

// ingressNamespaces are the namespaces in which the usual ones are installed.
var ingressNamespaces = []string{
	"contour", "envoy-gateway-system", "haproxy-controller", "ingress-nginx", "istio-ingress", "istio-system", "knative-serving",
	"kong", "kourier-system", "openshift-ingress", "projectcontour", "traefik",
}

// ParameterizedPolicies are the names of the policies that take parameters, sorted.
func ParameterizedPolicies() []string { return slices.Sorted(maps.Keys(parameterTable)) }

// Parameters are the parameters of a policy, sorted by name; none where it takes none. The
// slice is the caller's.
func Parameters(policy string) []Parameter { return slices.Clone(parameterTable[policy]) }

// DefaultParameters are the parameters of a policy as they are shipped, as a JSON object;
// nil where it takes none.
func DefaultParameters(policy string) []byte {
	if len(parameterTable[policy]) == 0 {
		return nil
	}
	fields := make(map[string]any)
	for _, parameter := range parameterTable[policy] {
		fields[parameter.Name] = parameter.Default
	}
	text, _ := json.Marshal(fields) // flags, numbers and texts always encode
	return text
}

// ParametersField is where the parameters stand in a Policy object: what [Check] says begins
// with it.
const ParametersField = "spec.parameters"

// maxShownBytes is how much of a value is shown, in bytes.
const maxShownBytes = 100

// ValidateParameters says what is wrong with what is set of a policy's parameters, sorted by
// name: the parameter, its value and what is allowed. Nothing means that all are
// right; those that are not set are.
func ValidateParameters(policy string, set []byte) []string {
	fields, err := decodeObject(set)
	if err != nil || fields == nil {
		return []string{fmt.Sprintf("%s: Invalid value: %s: must be a JSON object", ParametersField, abbreviateJSON(json.RawMessage(set)))}
	}
	known := make(map[string]Parameter, len(parameterTable[policy]))
	for _, parameter := range parameterTable[policy] {
		known[parameter.Name] = parameter
	}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parameter, ok := known[name]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("%s.%s: Invalid value: %s: there is no such parameter; %s", ParametersField, name, abbreviateJSON(fields[name]), describeParameters(policy)))
		case !parameter.Kind.matches(fields[name]):
			faults = append(faults, fmt.Sprintf("%s.%s: Invalid value: %s: must be %s", ParametersField, name, abbreviateJSON(fields[name]), parameter.Kind.Allowed))
		}
	}
	return faults
}

// describeParameters says which parameters a policy takes.
func describeParameters(policy string) string {
	var all []string
	for _, parameter := range parameterTable[policy] {
		all = append(all, parameter.Name)
	}
	if len(all) == 0 {
		return policy + " takes none"
	}
	return policy + " takes " + strings.Join(all, ", ")
}

// abbreviateJSON is a value as JSON, its beginning where it is long.
func abbreviateJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "not JSON"
	}
	if len(text) > maxShownBytes {
		return strings.ToValidUTF8(string(text[:maxShownBytes]), "") + "..."
	}
	return string(text)
}

// ParameterKind is what values a parameter has.
type ParameterKind struct {
	// Allowed says it, as in "must be true or false".
	Allowed string
	// matches tells whether a value, as JSON with numbers as [json.Number], is one.
	matches func(value any) bool
}

// BoolParameter is true or false.
var BoolParameter = ParameterKind{"true or false", func(value any) bool { _, ok := value.(bool); return ok }}

// The other kinds.
var (
	secondsKind        = integerKind("seconds", 1, 86400)
	nameKind           = ParameterKind{"a name of lower-case letters, digits, - and ., or empty", matchesString(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`)}
	nameListKind       = ParameterKind{"a list of names of lower-case letters, digits, - and .", matchesStringList(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)}
	adoptOrOwnKind     = ParameterKind{"adopt or own", matchesString(`^(adopt|own)$`)}
	quantityKind       = ParameterKind{"a quantity above 0 such as 100m or 256Mi", matchesString(`^([1-9][0-9]*|0\.[0-9]*[1-9])(m|[kMGT]|[KMGT]i)?$`)}
	pathListKind       = ParameterKind{"a list of absolute paths without . and .., such as /data", matchesStringList(`^/(([^/.]|\.[^/.]|\.\.[^/])[^/]*/?)*$`)}
	capabilityListKind = ParameterKind{"a list of capabilities in upper case without CAP_, such as SYS_ADMIN", matchesList(func(value any) bool {
		text, ok := value.(string)
		return ok && capabilityPattern.MatchString(text) && !strings.HasPrefix(text, "CAP_")
	})}
)

var capabilityPattern = regexp.MustCompile(`^[A-Z_]+$`)

// integerKind are numbers without a fraction, of a unit, between two bounds.
func integerKind(unit string, least, most int64) ParameterKind {
	return ParameterKind{fmt.Sprintf("a whole number of %s from %d to %d", unit, least, most), func(value any) bool {
		number, ok := value.(json.Number)
		if !ok {
			return false
		}
		n, err := strconv.ParseInt(number.String(), 10, 64)
		return err == nil && least <= n && n <= most
	}}
}

// matchesString are texts that match a pattern.
func matchesString(pattern string) func(any) bool {
	matching := regexp.MustCompile(pattern)
	return func(value any) bool {
		text, ok := value.(string)
		return ok && matching.MatchString(text)
	}
}

// matchesStringList are lists of such.
func matchesStringList(pattern string) func(any) bool { return matchesList(matchesString(pattern)) }

func matchesList(one func(any) bool) func(any) bool {
	return func(value any) bool {
		list, ok := value.([]any)
		return ok && !slices.ContainsFunc(list, func(element any) bool { return !one(element) })
	}
}

// decodeObject is a JSON object, with numbers as they are written.
func decodeObject(raw []byte) (map[string]any, error) {
	reader := json.NewDecoder(bytes.NewReader(raw))
	reader.UseNumber()
	var fields map[string]any
	if err := reader.Decode(&fields); err != nil {
		return nil, err
	}
	if _, err := reader.Token(); err != io.EOF {
		return nil, errors.New("something follows the object")
	}
	return fields, nil
}
