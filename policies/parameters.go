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

// Parameter is a parameter of a built-in policy.
type Parameter struct {
	// Name is the field in spec.parameters.
	Name string
	// Kind is the kind of its values.
	Kind ParameterKind
	// Default is its default value.
	Default any
	// Description describes its effect in a phrase.
	Description string
}

// parameterTable has the parameters of the built-in policies, by policy and sorted by name.
var parameterTable = map[string][]Parameter{
	"core.devices": {
		{
			"allowedCapabilities", capabilityListKind,
			[]string{},
			"capabilities that containers can add although they give access to GPUs of other pods",
		},
		{"allowedHostPaths", pathListKind, []string{}, "directories of nodes that pods can mount, with their subdirectories; " +
			"allow none in which pods can create links"},
		{"refuseEnvFrom", BoolParameter, true, "whether a container with a GPU is denied envFrom without a prefix, " +
			"since its variables override the device plugin's"},
		{"runtimeClasses", nameListKind, []string{"nvidia", "nvidia-cdi", "nvidia-legacy"}, "runtime classes that only pods with GPUs can use"},
	},
	"core.limits": {
		{"maximumGraceSeconds", secondsKind, 3600, "the maximum grace period of a pod; " +
			"a pod with GPUs holds them until its end, beyond its time limit"},
		{"maximumGraceSecondsOnGPUNodes", secondsKind, 60, "the maximum grace period of a pod without GPUs that can run on the nodes of a " +
			"pool; a pod with GPUs that needs its place waits for its end"},
		{"minimumGraceSeconds", secondsKind, 30, "the minimum grace period of a pod with GPUs"},
		{"schedulingGates", gateListKind, []string{}, "scheduling gates that a pod with GPUs can have beside that of its scheduler; " +
			"it holds its GPUs until the gate is removed, or its start timeout is over"},
	},
	"core.namespace": {
		{"allowanceCPU", quantityKind, "50", "the CPU for pods without GPUs in the default quota of CPU"},
		{"allowanceMemory", quantityKind, "125Gi", "the memory for pods without GPUs in the default quota of memory"},
		{"defaultCPU", quantityKind, "100m", "the CPU request of a container without one, in a project with a quota of CPU"},
		{"defaultMemory", quantityKind, "256Mi", "the memory request of a container without one, in a project with a quota of memory"},
		{"ingressNamespaces", nameListKind, ingressNamespaces, "names of the namespaces that can reach the pods of projects; " +
			"pods of all other namespaces cannot"},
	},
	"core.priority": {
		{"defaultClass", nameKind, "", "the cluster's PriorityClass with globalDefault; empty if it has none"},
		{"refuseOtherClasses", BoolParameter, false, "whether a pod is denied if its priority class is neither defaultClass nor one of Sluice's; " +
			"otherwise the class is replaced, with a warning"},
	},
	"core.quota": {
		{"allowClaims", BoolParameter, false, "whether pods can have resource claims, for clusters where claims never contain GPUs"},
		{"unlistedResources", warnOrDenyKind, "Warn", "what a pod with an extended resource gets that no list knows and no node of a pool " +
			"offers: a warning or a denial; what nodes of a pool offer is always denied"},
	},
	"schedulers.kai": {
		{"krm", adoptOrOwnKind, "own", "whether Sluice creates KAI-Scheduler's queues itself (own), " +
			"or creates projects and departments of kai-resource-management, which creates the queues (adopt)"},
	},
}

// ingressNamespaces are the usual namespaces of ingress controllers.
var ingressNamespaces = []string{
	"contour", "envoy-gateway-system", "haproxy-controller", "ingress-nginx", "istio-ingress", "istio-system", "knative-serving",
	"kong", "kourier-system", "openshift-ingress", "projectcontour", "traefik",
}

// IngressNamespaces returns the namespaces that can reach the pods of projects: the usual ones, and those of the
// parameters of the Policy core.namespace, which may be nil. Parameters that are not valid have no effect.
func IngressNamespaces(parameters []byte) []string {
	var configured struct {
		IngressNamespaces []string `json:"ingressNamespaces"`
	}
	if len(parameters) > 0 && len(ValidateParameters("core.namespace", parameters)) == 0 {
		_ = json.Unmarshal(parameters, &configured) // validated parameters always decode
	}
	return slices.Concat(ingressNamespaces, configured.IngressNamespaces)
}

// DefaultParameters returns the default parameters of a policy as a JSON object; nil if it has no parameters.
func DefaultParameters(policy string) []byte {
	if len(parameterTable[policy]) == 0 {
		return nil
	}
	fields := make(map[string]any)
	for _, parameter := range parameterTable[policy] {
		fields[parameter.Name] = parameter.Default
	}
	text, _ := json.Marshal(fields) // bools, numbers and strings always marshal
	return text
}

// ParametersField is the path of the parameters in a Policy object. The errors of [ValidateParameters] begin with it.
const ParametersField = "spec.parameters"

// maxShownBytes limits the length of a value in an error, in bytes.
const maxShownBytes = 100

// ValidateParameters returns an error for each invalid parameter of a policy, sorted by name: the parameter, its value
// and the allowed values.
func ValidateParameters(policy string, parameters []byte) []string {
	fields, err := decodeObject(parameters)
	if err != nil || fields == nil {
		return []string{fmt.Sprintf("%s: Invalid value: %s: must be a JSON object", ParametersField, abbreviateJSON(json.RawMessage(parameters)))}
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
			faults = append(faults, fmt.Sprintf("%s.%s: Invalid value: %s: there is no such parameter; %s",
				ParametersField, name, abbreviateJSON(fields[name]), describeParameters(policy)))
		case !parameter.Kind.matches(fields[name]):
			faults = append(faults, fmt.Sprintf("%s.%s: Invalid value: %s: must be %s",
				ParametersField, name, abbreviateJSON(fields[name]), parameter.Kind.Allowed))
		}
	}
	return faults
}

// describeParameters lists the parameters of a policy.
func describeParameters(policy string) string {
	var names []string
	for _, parameter := range parameterTable[policy] {
		names = append(names, parameter.Name)
	}
	if len(names) == 0 {
		return policy + " takes none"
	}
	return policy + " takes " + strings.Join(names, ", ")
}

// abbreviateJSON returns a value as JSON, truncated to maxShownBytes.
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

// ParameterKind is the set of values that a parameter can have.
type ParameterKind struct {
	// Allowed describes the values, as in "must be true or false".
	Allowed string
	// matches reports whether a decoded JSON value, with numbers as [json.Number], is allowed.
	matches func(value any) bool
}

// BoolParameter is true or false.
var BoolParameter = ParameterKind{"true or false", func(value any) bool { _, ok := value.(bool); return ok }}

// The other kinds.
var (
	secondsKind        = integerKind("seconds", 1, 86400)
	nameKind           = ParameterKind{"a name of lower-case letters, digits, - and ., or empty", matchesString(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`)}
	nameListKind       = ParameterKind{"a list of names of lower-case letters, digits, - and .", matchesStringList(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)}
	gateListKind       = ParameterKind{"a list of names such as example.org/gate", matchesStringList(`^[a-zA-Z0-9][-\w./]*$`)}
	adoptOrOwnKind     = ParameterKind{"adopt or own", matchesString(`^(adopt|own)$`)}
	warnOrDenyKind     = ParameterKind{"Warn or Deny", matchesString(`^(Warn|Deny)$`)}
	quantityKind       = ParameterKind{"a quantity above 0 such as 100m or 256Mi", matchesString(`^([1-9][0-9]*|0\.[0-9]*[1-9])(m|[kMGT]|[KMGT]i)?$`)}
	pathListKind       = ParameterKind{"a list of absolute paths without . and .., such as /data", matchesStringList(`^/(([^/.]|\.[^/.]|\.\.[^/])[^/]*/?)*$`)}
	capabilityListKind = ParameterKind{"a list of capabilities in upper case without CAP_, such as SYS_ADMIN", matchesList(func(value any) bool {
		text, ok := value.(string)
		return ok && capabilityPattern.MatchString(text) && !strings.HasPrefix(text, "CAP_")
	})}
)

var capabilityPattern = regexp.MustCompile(`^[A-Z_]+$`)

// integerKind matches integers in a range.
func integerKind(unit string, minimum, maximum int64) ParameterKind {
	return ParameterKind{fmt.Sprintf("a whole number of %s from %d to %d", unit, minimum, maximum), func(value any) bool {
		number, ok := value.(json.Number)
		if !ok {
			return false
		}
		n, err := strconv.ParseInt(number.String(), 10, 64)
		return err == nil && minimum <= n && n <= maximum
	}}
}

// matchesString matches strings against a pattern.
func matchesString(pattern string) func(any) bool {
	compiled := regexp.MustCompile(pattern)
	return func(value any) bool {
		text, ok := value.(string)
		return ok && compiled.MatchString(text)
	}
}

// matchesStringList matches lists of such strings.
func matchesStringList(pattern string) func(any) bool { return matchesList(matchesString(pattern)) }

func matchesList(matchesElement func(any) bool) func(any) bool {
	return func(value any) bool {
		list, ok := value.([]any)
		return ok && !slices.ContainsFunc(list, func(element any) bool { return !matchesElement(element) })
	}
}

// decodeObject decodes a JSON object. It keeps the text of numbers.
func decodeObject(raw []byte) (map[string]any, error) {
	reader := json.NewDecoder(bytes.NewReader(raw))
	reader.UseNumber()
	var fields map[string]any
	if err := reader.Decode(&fields); err != nil {
		return nil, err
	}
	if _, err := reader.Token(); err != io.EOF {
		return nil, errors.New("data after the object")
	}
	return fields, nil
}
