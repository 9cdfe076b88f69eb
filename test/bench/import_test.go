// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiconstraints "github.com/open-policy-agent/frameworks/constraint/pkg/apis/constraints"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego/schema"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/reviews"
	"github.com/open-policy-agent/frameworks/constraint/pkg/core/templates"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/check"
	"sluice.dev/policies/convert"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/document"
)

const importedTemplates = "../../policies/convert/testdata/gatekeeper"

// The policies that sluice policy import makes of 20 templates with 23 constraints have the messages that Gatekeeper has, with
// its own target and driver, for pods and Jobs in several namespaces.
func TestImportedConstraintsHaveGatekeepersMessages(t *testing.T) {
	theirs, ours := gatekeeperFromFiles(t), importedEngine(t)
	found := make(map[string]int)
	compared := 0
	for _, created := range importObjects(t) {
		for _, namespace := range []string{"sample", "kube-system", "course-ml", "prod-eu", "eu-prod"} {
			review := requestOf(t, created, namespace)
			want := gatekeeperMessages(t, theirs, review)
			got := sluiceMessages(t, ours, review)
			if diff := cmp.Diff(want, got); diff != "" {
				raw, _ := json.Marshal(created)
				t.Fatalf("in %s: gatekeeper (-) and sluice (+) differ:\n%s\n%s", namespace, diff, raw)
			}
			for _, message := range want {
				name, _, _ := strings.Cut(message, ": ")
				found[name]++
			}
			compared++
		}
	}
	if len(found) != 23 {
		t.Errorf("%d of 23 constraints refused an object: %v", len(found), found)
	}
	t.Logf("%d requests compared", compared)
}

// documentsOf returns the objects of the templates' files.
func documentsOf(tb testing.TB) (all []object, files []convert.File) {
	tb.Helper()
	names, err := filepath.Glob(importedTemplates + "/*.yaml")
	if err != nil || len(names) != 20 {
		tb.Fatal(names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		files = append(files, convert.File{Name: filepath.Base(name), Text: text})
		for _, part := range bytes.Split(text, []byte("\n---\n")) {
			var content object
			if err := yaml.Unmarshal(part, &content); err != nil {
				tb.Fatal(err)
			}
			all = append(all, content)
		}
	}
	return all, files
}

// gatekeeperFromFiles is Gatekeeper's client with the templates and constraints, whose parameters have the defaults that the
// API server would set.
func gatekeeperFromFiles(tb testing.TB) *client.Client {
	tb.Helper()
	evaluator, err := rego.New(rego.DisableBuiltins("http.send"))
	if err != nil {
		tb.Fatal(err)
	}
	c, err := client.NewClient(client.Driver(evaluator), client.Targets(&target.K8sValidationTarget{}), client.EnforcementPoints(apiconstraints.WebhookEnforcementPoint))
	if err != nil {
		tb.Fatal(err)
	}
	documents, _ := documentsOf(tb)
	schemas := make(map[string]*structural.Structural)
	for _, content := range documents {
		if content["kind"] == "ConstraintTemplate" {
			template, parameters := readTemplate(tb, content)
			schemas[template.Spec.CRD.Spec.Names.Kind] = parameters
			if _, err := c.AddTemplate(tb.Context(), template); err != nil {
				tb.Fatal(template.Name, err)
			}
		}
	}
	for _, content := range documents {
		if content["kind"] == "ConstraintTemplate" {
			continue
		}
		constraint := &unstructured.Unstructured{Object: content}
		if parameters := schemas[constraint.GetKind()]; parameters != nil {
			given, _, _ := unstructured.NestedMap(normalize(content), "spec", "parameters")
			if given == nil {
				given = object{}
			}
			defaulting.Default(given, parameters)
			content["spec"].(object)["parameters"] = given
		}
		constraint.Object = normalize(content)
		if _, err := c.AddConstraint(tb.Context(), constraint); err != nil {
			tb.Fatal(constraint.GetName(), err)
		}
	}
	return c
}

// normalize converts numbers to the types of unstructured objects.
func normalize(content object) object {
	raw, _ := json.Marshal(content)
	result := &unstructured.Unstructured{}
	if err := result.UnmarshalJSON(raw); err != nil {
		return content
	}
	return result.Object
}

// readTemplate returns a template, and the schema of its parameters; nil if it has none.
func readTemplate(tb testing.TB, content object) (*templates.ConstraintTemplate, *structural.Structural) {
	tb.Helper()
	kind, _, _ := unstructured.NestedString(content, "spec", "crd", "spec", "names", "kind")
	first := content["spec"].(object)["targets"].([]any)[0].(object)
	source := schema.Source{Version: "v0"}
	if code, ok := first["code"].([]any); ok {
		first = code[0].(object)["source"].(object)
		source.Version = first["version"].(string)
	}
	source.Rego = first["rego"].(string)
	if libraries, ok := first["libs"].([]any); ok {
		for _, library := range libraries {
			source.Libs = append(source.Libs, library.(string))
		}
	}
	anything := apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	template := &templates.ConstraintTemplate{}
	template.Name = strings.ToLower(kind)
	template.Spec.CRD.Spec.Names.Kind = kind
	template.Spec.CRD.Spec.Validation = &templates.Validation{OpenAPIV3Schema: &anything}
	template.Spec.Targets = []templates.Target{{
		Target: target.Name,
		Code:   []templates.Code{{Engine: schema.Name, Source: &templates.Anything{Value: source.ToUnstructured()}}},
	}}
	declared, ok, _ := unstructured.NestedMap(content, "spec", "crd", "spec", "validation", "openAPIV3Schema")
	if !ok {
		return template, nil
	}
	raw, _ := json.Marshal(declared)
	var props apiextensionsv1.JSONSchemaProps
	var internal apiextensions.JSONSchemaProps
	if err := json.Unmarshal(raw, &props); err != nil {
		tb.Fatal(err)
	}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &internal, nil); err != nil {
		tb.Fatal(err)
	}
	parameters, err := structural.NewStructural(&internal)
	if err != nil {
		tb.Fatal(kind, err)
	}
	return template, parameters
}

// importedEngine is Sluice's engine with the converted policies, all in Deny.
func importedEngine(tb testing.TB) *engine.Engine {
	tb.Helper()
	_, files := documentsOf(tb)
	result, err := convert.Gatekeeper(tb.Context(), files, func(_ context.Context, source engine.Source, libraries ...engine.Source) (check.Result, error) {
		return check.Check(source, libraries...), nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	e, err := engine.New(engine.Options{Limits: engine.Limits{Evaluation: time.Minute, Request: time.Minute}})
	if err != nil {
		tb.Fatal(err)
	}
	var sources []engine.Source
	for i := range result.Policies {
		source := engine.FromPolicy(&result.Policies[i].Policy)
		if !source.IsLibrary() {
			source.Enforcement = v1alpha1.EnforcementDeny
		}
		sources = append(sources, source)
	}
	for _, report := range e.Update(sources) {
		for _, problem := range report.Problems {
			tb.Fatal(problem)
		}
	}
	return e
}

// importObjects returns pods that keep and break the rules, and Jobs.
func importObjects(tb testing.TB) []object {
	tb.Helper()
	var all []object
	for number := range 30 {
		all = append(all, pod(number))
	}
	variants := []string{
		`{}`,
		`{"metadata":{"labels":{"team":"Vision1","app":"a","tier":"service"}}}`,
		`{"metadata":{"labels":{"team":"vision","app":"a","tier":"gateway","stage":"production","role":"student"},"annotations":{"owner":"a","data-class":"secret"}}}`,
		`{"metadata":{"labels":{"system":"x"},"annotations":{"data-class":"public"}},"spec":{"hostNetwork":true,"hostPID":true}}`,
		`{"spec":{"hostIPC":true,"automountServiceAccountToken":false,"priorityClassName":"urgent"}}`,
		`{"spec":{"priorityClassName":"batch","securityContext":{"runAsUser":500}}}`,
		`{"spec":{"containers":[{"name":"c","image":"registry.example.org/system/a","securityContext":{"privileged":true}}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"nvcr.io/nvidia/a:1","securityContext":{"privileged":true,"runAsUser":0,"capabilities":{"add":["SYS_ADMIN","NET_ADMIN"]}}}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"a:5000/b","ports":[{"hostPort":80},{"hostPort":31000},{"hostPort":40000}],"resources":{"limits":{"cpu":"8001m","memory":"512Gi"}}}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"a@sha256:` + strings.Repeat("a", 64) + `","resources":{"limits":{"cpu":"9","memory":"1e3"}},"readinessProbe":{"exec":{}},"livenessProbe":{"periodSeconds":1}}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"a:main","securityContext":{"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false,"runAsNonRoot":true,"capabilities":{"drop":["ALL"]}}}],"initContainers":[{"name":"i","image":"other/b:latest","securityContext":{"allowPrivilegeEscalation":true}}]}}`,
		`{"spec":{"containers":[{"name":"c","image":"a:1","env":[{"name":"CUDA_VISIBLE_DEVICES","value":"0"},{"name":"LD_PRELOAD","value":"x"}],"resources":{"limits":{"nvidia.com/gpu":"3"}}},{"name":"d","image":"a:1","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`,
		`{"metadata":{"labels":{"role":"student"}},"spec":{"containers":[{"name":"c","image":"a:1","securityContext":{"capabilities":{"add":["CHOWN"]}}}]}}`,
		`{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/datasets/a"}},{"name":"w","hostPath":{"path":"/datasetsx"}},{"name":"s","secret":{}}],"containers":[{"name":"c","image":"a:1","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}}`,
		`{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/datasets/a/"}},{"name":"w","hostPath":{"path":"/var/run/x"}}],"containers":[{"name":"c","image":"a:1","volumeMounts":[{"name":"v","mountPath":"/v","readOnly":true}]}]}}`,
	}
	for _, variant := range variants {
		created := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "a"}, "spec": object{"containers": []any{object{"name": "c", "image": "a"}}}}
		var change object
		if err := json.Unmarshal([]byte(variant), &change); err != nil {
			tb.Fatal(err)
		}
		for _, part := range []string{"metadata", "spec"} {
			for key, value := range asObject(change[part]) {
				created[part].(object)[key] = value
			}
		}
		all = append(all, created)
	}
	for _, spec := range []object{{}, {"activeDeadlineSeconds": 60}, {"activeDeadlineSeconds": 86401}} {
		spec["template"] = object{"spec": object{"containers": []any{object{"name": "c", "image": "a"}}, "restartPolicy": "Never"}}
		all = append(all, object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": "j"}, "spec": spec})
	}
	return all
}

func asObject(value any) object {
	content, _ := value.(object)
	return content
}

// requestOf returns the request that creates an object in a namespace.
func requestOf(tb testing.TB, created object, namespace string) *admissionv1.AdmissionRequest {
	tb.Helper()
	placed := normalize(created)
	placed["metadata"].(object)["namespace"] = namespace
	raw, err := json.Marshal(placed)
	if err != nil {
		tb.Fatal(err)
	}
	request := &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create, Namespace: namespace}
	request.Object.Raw = raw
	request.Kind = metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	if created["kind"] == "Job" {
		request.Kind = metav1.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	}
	return request
}

func gatekeeperMessages(tb testing.TB, c *client.Client, request *admissionv1.AdmissionRequest) []string {
	tb.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: request.Namespace, Labels: map[string]string{corev1.LabelMetadataName: request.Namespace}}}
	review := &target.AugmentedReview{AdmissionRequest: request, Namespace: namespace}
	responses, err := c.Review(tb.Context(), review, reviews.EnforcementPoint(apiconstraints.WebhookEnforcementPoint))
	if err != nil {
		tb.Fatal(err)
	}
	all := []string{}
	for _, result := range responses.Results() {
		all = append(all, result.Constraint.GetName()+": "+result.Msg)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func sluiceMessages(tb testing.TB, e *engine.Engine, request *admissionv1.AdmissionRequest) []string {
	tb.Helper()
	raw, err := json.Marshal(request)
	if err != nil {
		tb.Fatal(err)
	}
	decoded, err := document.Decode(raw)
	if err != nil {
		tb.Fatal(err)
	}
	set, err := e.Current()
	if err != nil {
		tb.Fatal(err)
	}
	outcome, err := set.Evaluate(tb.Context(), engine.Input{
		Subject: engine.Subject{Operation: v1alpha1.OperationCreate, Group: request.Kind.Group, Kind: request.Kind.Kind},
		Review:  decoded, Now: now,
	})
	if err != nil {
		tb.Fatal(err)
	}
	all := []string{}
	for _, denial := range outcome.Denials {
		all = append(all, denial.Policy+": "+denial.Message)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
