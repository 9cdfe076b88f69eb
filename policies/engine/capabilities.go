// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// refused are the built-in functions that policies do not have, each with the
// reason that its author is told. A name that ends in a dot is a family.
var refused = map[string]string{
	"http.send":                 "policies have no network; what they need is in input",
	"net.":                      "policies have no network",
	"time.now_ns":               "policies have no clock; the time of the request is input.now",
	"rand.":                     "a policy must give the same answer twice",
	"uuid.rfc4122":              "a policy must give the same answer twice",
	"opa.runtime":               "policies know nothing of the host",
	"trace":                     "evaluations are not traced",
	"rego.parse_module":         "a policy does not parse policies",
	"io.jwt.":                   "a policy judges objects, not tokens",
	"providers.":                "a policy signs no requests",
	"crypto.x509.":              "a policy judges objects, not certificates",
	"crypto.parse_private_keys": "a policy judges objects, not keys",
	"graphql.":                  "a policy judges objects, not queries",
	"json.match_schema":         "a schema may be fetched from elsewhere; compare fields instead",
	"json.verify_schema":        "a schema may be fetched from elsewhere; compare fields instead",
	"graph.reachable_paths":     "it takes exponential time; use graph.reachable",
	"regex.globs_match":         "it takes exponential time; use regex.match or glob.match",
	"strings.render_template":   "its loops cannot be stopped; use sprintf or a template string",
	"bits.lsh":                  "it takes memory without limit; multiply by a power of two",
	"internal.test_case":        "it is for tests",
}

// refusal tells why a built-in function is not to be had.
func refusal(name string) (string, bool) {
	if why, ok := refused[name]; ok {
		return why, true
	}
	for family, why := range refused {
		if strings.HasSuffix(family, ".") && strings.HasPrefix(name, family) {
			return why, true
		}
	}
	return "", false
}

// capabilities are the functions and the language of policies; those of v0 are
// for Gatekeeper's templates.
var (
	capabilities   = capabilitiesOf(ast.RegoV1)
	capabilitiesV0 = capabilitiesOf(ast.RegoV0)
)

func capabilitiesOf(version ast.RegoVersion) *ast.Capabilities {
	all := ast.CapabilitiesForThisVersion(ast.CapabilitiesRegoVersion(version))
	all.Builtins = slices.DeleteFunc(all.Builtins, func(builtin *ast.Builtin) bool {
		_, gone := refusal(builtin.Name)
		return gone
	})
	// Policies are Rego v1: what a later version means by the same text is not
	// theirs to choose.
	all.Features = slices.DeleteFunc(all.Features, func(feature string) bool {
		return feature == ast.FeatureRegoV2 || feature == ast.FeatureRegoV2Import
	})
	all.AllowNet = []string{}
	return all
}
