// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/workload"
)

// narrow returns the answer to a new pod, and the pod with the answer's patch, as JSON.
func narrow(t *testing.T, creators *workload.CreatorResolver, user string, pod []byte) (admission.Response, []byte) {
	t.Helper()
	response := (&workload.AffinityNarrower{Creators: creators}).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: ns, UserInfo: authenticationv1.UserInfo{Username: user}, Object: runtime.RawExtension{Raw: pod},
	}})
	if len(response.Patch) == 0 {
		return response, pod
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(pod)
	if err != nil {
		t.Fatal(err)
	}
	return response, after
}

func parse(t *testing.T, text string) []byte {
	t.Helper()
	parsed, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

const required = "requiredDuringSchedulingIgnoredDuringExecution"

// A pod keeps only pods of its creator off its nodes, whichever user sends it: %s is the label of the creator. Guards invariant 4 of the design.
func TestAffinityNarrowedToTheCreator(t *testing.T) {
	resolver := newResolver(t, interceptor.Funcs{}, objects()...)
	anti := func(selector string) string {
		return `affinity: {podAntiAffinity: {` + required + `: [{topologyKey: kubernetes.io/hostname` + selector + `}]}}`
	}
	for name, tc := range map[string]struct {
		spec, want string
	}{
		"replicas":      {anti(`, labelSelector: {matchLabels: {app: db}}`), anti(`, labelSelector: {matchLabels: {app: db, sluice.dev/creator: %s}}`)},
		"everybody":     {anti(`, labelSelector: {}`), anti(`, labelSelector: {matchLabels: {sluice.dev/creator: %s}}`)},
		"another":       {anti(`, labelSelector: {matchLabels: {sluice.dev/creator: x}}`), anti(`, labelSelector: {matchLabels: {sluice.dev/creator: %s}}`)},
		"all but me":    {anti(`, labelSelector: {}, mismatchLabelKeys: [sluice.dev/creator]`), anti(`, labelSelector: {matchLabels: {sluice.dev/creator: %s}}, mismatchLabelKeys: [sluice.dev/creator]`)},
		"two terms":     {`affinity: {podAntiAffinity: {` + required + `: [{labelSelector: {}}, {labelSelector: {}}]}}`, `affinity: {podAntiAffinity: {` + required + `: [{labelSelector: {matchLabels: {sluice.dev/creator: %[1]s}}}, {labelSelector: {matchLabels: {sluice.dev/creator: %[1]s}}}]}}`},
		"must spread":   {`topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]`, `topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {sluice.dev/creator: %s}}}]`},
		"should spread": {`topologySpreadConstraints: [{whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]`, ""},
		"nobody":        {anti(""), ""},
		"null":          {anti(`, labelSelector: null`), ""},
		"near others":   {`affinity: {podAffinity: {` + required + `: [{labelSelector: {}}]}}`, ""},
		"none":          {`nodeName: x`, ""},
		"text":          {anti(`, labelSelector: x`), ""},
		"no list":       {`affinity: {podAntiAffinity: {` + required + `: x}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sender := range []struct {
				user, creator string
				owner         *metav1.OwnerReference
			}{
				{anna, anna, nil},
				{account, account, nil},
				{replicaSet, anna, ref("apps/v1", "ReplicaSet", "web-1")},
				{jobs, anna, ref("batch/v1", "Job", "nightly-1")},
				{bob, bob, ref("batch/v1", "Job", "train")}, // a forged owner
				{jobs, "train-uid", &metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "former", UID: "train-uid", Controller: new(true)}},
			} {
				metadata, err := yaml.Marshal(meta("", "", sender.owner))
				if err != nil {
					t.Fatal(err)
				}
				pod := func(labels, spec string) []byte {
					return parse(t, "metadata:\n  labels: "+labels+"\n  "+strings.ReplaceAll(string(metadata), "\n", "\n  ")+"\nspec: {"+spec+"}")
				}
				label := v1alpha1.CreatorLabel(sender.creator)
				want := pod(`{app: db}`, tc.spec)
				if tc.want != "" {
					want = pod(`{app: db, sluice.dev/creator: `+label+`}`, fmt.Sprintf(tc.want, label))
				}
				response, after := narrow(t, resolver, sender.user, pod(`{app: db}`, tc.spec))
				if !response.Allowed || !jsonpatch.Equal(after, want) {
					t.Errorf("%s: %+v\n%s, want\n%s", sender.user, response.Result, after, want)
				}
			}
		})
	}
}

// What the narrower leaves, the validator accepts; terms that another webhook added after it, it refuses.
func TestAffinityOfFinalPods(t *testing.T) {
	resolver := newResolver(t, interceptor.Funcs{}, objects()...)
	validate := func(user string, pod []byte) admission.Response {
		return (&workload.PodCreatorValidator{Claims: &workload.ClaimReader{Creators: resolver}}).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Namespace: ns, UserInfo: authenticationv1.UserInfo{Username: user}, Object: runtime.RawExtension{Raw: pod},
		}})
	}
	for field, spec := range map[string]string{
		"spec.affinity.podAntiAffinity." + required + "[1]": `affinity: {podAntiAffinity: {` + required + `: [{topologyKey: x}, {labelSelector: {}}]}}`,
		"spec.topologySpreadConstraints[0]":                 `topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: x}}, matchLabelKeys: [pod-template-hash, sluice.dev/creator]}]`,
	} {
		for user, owner := range map[string]string{anna: "", jobs: `, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: former, uid: former, controller: true}]`} {
			for _, labels := range []string{"{}", "{sluice.dev/creator: forged}"} {
				pod := parse(t, `{metadata: {labels: `+labels+owner+`}, spec: {`+spec+`}}`)
				_, after := narrow(t, resolver, user, pod)
				if response := validate(user, after); !response.Allowed {
					t.Errorf("%s: %+v\n%s", user, response.Result, after)
				}
				if labels != "{}" {
					continue
				}
				if response := validate(user, pod); response.Allowed || !strings.HasPrefix(response.Result.Message, field+".labelSelector: the term keeps pods of others away") {
					t.Errorf("%s: allowed = %v: %+v", user, response.Allowed, response.Result)
				}
			}
		}
	}
}

// Of terms that are not about the pod itself its author is warned, since they keep fewer pods away than they say.
func TestAffinityWarnings(t *testing.T) {
	resolver := newResolver(t, interceptor.Funcs{}, objects()...)
	for selector, warned := range map[string]bool{
		`{}`: true, `{matchLabels: {app: web}}`: true, `{matchLabels: {app: web, tier: one}}`: true,
		`{matchExpressions: [{key: app, operator: In, values: [web, cache]}]}`:                                                         true,
		`{matchExpressions: [{key: app, operator: Exists}, {key: app, operator: NotIn, values: [db]}]}`:                                true,
		`{matchExpressions: [{key: app, operator: Exists}, {key: app, operator: DoesNotExist}]}`:                                       true,
		`{matchLabels: {app: db, batch.kubernetes.io/job-name: train}}`:                                                                false,
		`{matchExpressions: [{key: app, operator: In, values: [db, web]}]}`:                                                            false,
		`{matchLabels: {app: db}, matchExpressions: [{key: tier, operator: DoesNotExist}, {key: tier, operator: NotIn, values: [x]}]}`: false,
	} {
		response, _ := narrow(t, resolver, anna, parse(t, `{metadata: {labels: {app: db}}, spec: {affinity: {podAntiAffinity: {`+required+`: [{labelSelector: `+selector+`}]}}}}`))
		const want = "spec.affinity.podAntiAffinity." + required + "[0].labelSelector: the term keeps only pods of the same creator away; select labels that the pod itself has, so that its replicas run apart"
		if !response.Allowed || (len(response.Warnings) > 0) != warned || warned && response.Warnings[0] != want {
			t.Errorf("%s: %v %v", selector, response.Allowed, response.Warnings)
		}
	}
}

// Without an answer to who created the owner, no pod is admitted. Guards invariant 4 of the design.
func TestAffinityFailsClosed(t *testing.T) {
	broken := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if key.Name == "train" {
			return context.DeadlineExceeded
		}
		return c.Get(ctx, key, object, options...)
	}}
	pod, err := yaml.Marshal(corev1.Pod{
		ObjectMeta: meta("a", "", ref("batch/v1", "Job", "train")),
		Spec: corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{}}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	response, _ := narrow(t, newResolver(t, broken, objects()...), jobs, parse(t, string(pod)))
	if response.Allowed || response.Result.Code != http.StatusInternalServerError || !strings.Contains(response.Result.Message, "find the creator of the pod") {
		t.Errorf("allowed = %v: %+v", response.Allowed, response.Result)
	}
}
