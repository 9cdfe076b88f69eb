// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"fmt"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"sluice.dev/manifests"
)

// oldestKubernetes is the oldest supported version. An API server accepts in new expressions what its former minor
// version knows too, so that it can be rolled back: that is the version to compile for.
const (
	oldestKubernetes = "1.32"
	compiledFor      = "1.31"
)

func oldestEnvironment() *environment.EnvSet {
	return environment.MustBaseEnvSet(version.MustParseGeneric(compiledFor))
}

// expression is a CEL expression of the manifests.
type expression struct {
	name, text string
	types      []*celgo.Type
}

func (e expression) GetExpression() string      { return e.text }
func (e expression) GetName() string            { return e.name }
func (e expression) ReturnTypes() []*celgo.Type { return e.types }

var (
	anyType    = []*celgo.Type{celgo.AnyType, celgo.DynType}
	boolType   = []*celgo.Type{celgo.BoolType}
	stringType = []*celgo.Type{celgo.StringType}
)

// compile reports an error if the oldest API server would refuse the expression.
func compile(t *testing.T, compiler cel.Compiler, where string, e expression, options cel.OptionalVariableDeclarations) {
	t.Helper()
	if result := compiler.CompileCELExpression(e, options, environment.NewExpressions); result.Error != nil {
		t.Errorf("%s: %s: Kubernetes %s refuses %q: %v", where, e.name, oldestKubernetes, e.text, result.Error)
	}
}

func TestAdmissionPoliciesCompileForOldestKubernetes(t *testing.T) {
	policies, _ := admissionPolicies(t)
	count := 0
	for i := range policies {
		policy := &policies[i]
		compiler, err := cel.NewCompositedCompiler(oldestEnvironment())
		if err != nil {
			t.Fatal(err)
		}
		options := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
		for _, condition := range policy.Spec.MatchConditions {
			compile(t, compiler.Compiler, policy.Name, expression{"matchCondition " + condition.Name, condition.Expression, boolType}, options)
		}
		for _, variable := range policy.Spec.Variables {
			result := compiler.CompileAndStoreVariable(expression{variable.Name, variable.Expression, anyType}, options, environment.NewExpressions)
			if result.Error != nil {
				t.Errorf("%s: variable %s: Kubernetes %s refuses %q: %v", policy.Name, variable.Name, oldestKubernetes, variable.Expression, result.Error)
			}
		}
		for n, validation := range policy.Spec.Validations {
			compile(t, compiler.Compiler, policy.Name, expression{fmt.Sprintf("validations[%d]", n), validation.Expression, boolType}, options)
			if validation.MessageExpression != "" {
				compile(t, compiler.Compiler, policy.Name, expression{fmt.Sprintf("validations[%d].messageExpression", n), validation.MessageExpression, stringType}, options)
			}
			count++
		}
	}
	if count < 30 {
		t.Errorf("only %d validations were compiled", count)
	}
}

func TestWebhookConditionsCompileForOldestKubernetes(t *testing.T) {
	compiler := cel.NewCompiler(oldestEnvironment())
	count := 0
	for _, object := range buildObjects(t, manifests.Production) {
		conditions := map[string][]admissionv1.MatchCondition{}
		switch object.GetKind() {
		case "MutatingWebhookConfiguration":
			var configuration admissionv1.MutatingWebhookConfiguration
			decode(t, object, &configuration)
			for _, webhook := range configuration.Webhooks {
				conditions["mutating "+webhook.Name] = webhook.MatchConditions
			}
		case "ValidatingWebhookConfiguration":
			var configuration admissionv1.ValidatingWebhookConfiguration
			decode(t, object, &configuration)
			for _, webhook := range configuration.Webhooks {
				conditions["validating "+webhook.Name] = webhook.MatchConditions
			}
		}
		for webhook, list := range conditions {
			for _, condition := range list {
				accessor := (*matchconditions.MatchCondition)(&condition)
				options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
				if result := compiler.CompileCELExpression(accessor, options, environment.NewExpressions); result.Error != nil {
					t.Errorf("%s: %s: Kubernetes %s refuses it: %v", webhook, condition.Name, oldestKubernetes, result.Error)
				}
				count++
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d conditions were compiled", count)
	}
}

func TestCRDRulesCompileForOldestKubernetes(t *testing.T) {
	count := 0
	for _, object := range buildObjects(t, "crds") {
		var crd apiextensionsv1.CustomResourceDefinition
		decode(t, object, &crd)
		for _, served := range crd.Spec.Versions {
			var internal apiextensions.JSONSchemaProps
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(served.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
				t.Fatal(err)
			}
			structural, err := schema.NewStructural(&internal)
			if err != nil {
				t.Fatal(err)
			}
			count += compileSchema(t, crd.Name, structural, true)
		}
	}
	if count < 50 {
		t.Errorf("only %d rules were compiled", count)
	}
}

// compileSchema compiles the rules of a schema and of all below it, and returns their number.
func compileSchema(t *testing.T, path string, s *schema.Structural, root bool) (count int) {
	t.Helper()
	results, err := schemacel.Compile(s, model.SchemaDeclType(s, root), celconfig.PerCallLimit, oldestEnvironment(), schemacel.NewExpressionsEnvLoader())
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	for i, result := range results {
		if result.Error != nil {
			t.Errorf("%s: Kubernetes %s refuses %q: %v", path, oldestKubernetes, s.XValidations[i].Rule, result.Error)
		}
		if result.MessageExpressionError != nil {
			t.Errorf("%s: Kubernetes %s refuses %q: %v", path, oldestKubernetes, s.XValidations[i].MessageExpression, result.MessageExpressionError)
		}
	}
	count = len(results)
	for name := range s.Properties {
		property := s.Properties[name]
		count += compileSchema(t, path+"."+name, &property, false)
	}
	if s.Items != nil {
		count += compileSchema(t, path+"[]", s.Items, false)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		count += compileSchema(t, path+"{}", s.AdditionalProperties.Structural, false)
	}
	return count
}

// The environment is that of the oldest version: it refuses macros that came later.
func TestOldestEnvironmentRefusesNewerCEL(t *testing.T) {
	result := cel.NewCompiler(oldestEnvironment()).CompileCELExpression(
		expression{"two variables", "[1].all(i, v, i < v)", boolType}, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
	if result.Error == nil || !strings.Contains(result.Error.Error(), "compilation failed") {
		t.Errorf("it compiles: %v", result.Error)
	}
	newer := cel.NewCompiler(environment.MustBaseEnvSet(version.MustParseGeneric("1.36"))).CompileCELExpression(
		expression{"two variables", "[1].all(i, v, i < v)", boolType}, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
	if newer.Error != nil {
		t.Errorf("Kubernetes 1.36 refuses it, too: %v", newer.Error)
	}
}
