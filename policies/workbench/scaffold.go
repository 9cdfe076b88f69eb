// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/util/validation"
)

//go:embed scaffold
var scaffolds embed.FS

// ScaffoldKinds are the kinds of new policies, by the rule that they define.
var ScaffoldKinds = []string{"deny", "default", "override", "append"}

// scaffoldParts are the files of a new policy: their endings, and their names among the templates.
var scaffoldParts = map[string]string{
	".yaml": "policy.yaml", ".rego": "policy.rego.txt", unitTestSuffix: "test.rego.txt", caseSuffix: "case.yaml",
}

// Scaffold returns the files of a new policy, by name: the object, its Rego, unit tests and cases, which pass. The name is a DNS label.
func Scaffold(name, kind string) (map[string]string, error) {
	packageName, err := PackageOf(name)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(ScaffoldKinds, kind) {
		return nil, fmt.Errorf("kind: %q: it must be one of %s", kind, strings.Join(ScaffoldKinds, ", "))
	}
	replacer := strings.NewReplacer("POLICY", name, "PACKAGE", packageName)
	files := make(map[string]string, len(scaffoldParts))
	for ending, part := range scaffoldParts {
		text, err := scaffolds.ReadFile("scaffold/" + kind + "/" + part)
		if err != nil {
			return nil, err
		}
		files[name+ending] = replacer.Replace(string(text))
	}
	return files, nil
}

// PackageOf returns the package of the Rego of a policy. The name is a DNS label that can be a package.
func PackageOf(name string) (string, error) {
	if faults := validation.IsDNS1123Label(name); len(faults) > 0 {
		return "", fmt.Errorf("name: %q: %s", name, strings.Join(faults, "; "))
	}
	packageName := strings.ReplaceAll(name, "-", "_")
	probe := "package " + packageName + "_test\n\nimport data." + packageName
	_, err := ast.ParseModuleWithOpts("", probe, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil || slices.Contains([]string{"input", "data", "sluice"}, packageName) {
		return "", fmt.Errorf("name: %q: the package of its Rego cannot be %s: begin with a letter, and use neither a keyword nor sluice", name, packageName)
	}
	return packageName, nil
}
