// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/webhook/evaluation"
	"sluice.dev/webhook/workload"
)

const (
	professor    = "professor@example.org"
	dataAdmin    = "data-administrator@example.org"
	statefulSets = jobs // one of the controllers of the parameters
)

// rights are those of professors, and of one who has no role in workloads.
type rights struct{}

func (r rights) ChangesOnlyOwn(ctx context.Context, user authenticationv1.UserInfo, namespace string) (bool, error) {
	others, err := r.ChangesOthers(ctx, user, namespace)
	return !others && user.Username != dataAdmin, err
}

func (rights) ChangesOthers(_ context.Context, user authenticationv1.UserInfo, _ string) (bool, error) {
	return user.Username == professor || slices.Contains(user.Groups, "professors"), nil
}

var (
	claimsStart = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	hers        = map[string]string{v1alpha1.SharedClaimLabel: "false"}
	shared      = map[string]string{v1alpha1.SharedClaimLabel: "true"}
)

func newClaim(name, by string, labels map[string]string, age time.Duration) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta(name, by, nil)}
	claim.Labels, claim.CreationTimestamp = labels, metav1.NewTime(claimsStart.Add(-age))
	return claim
}

func newSet(name, by string, owner *metav1.OwnerReference, templates ...string) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: meta(name, by, owner)}
	set.CreationTimestamp = metav1.NewTime(claimsStart)
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
	for _, template := range templates {
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: template}})
	}
	return set
}

// claimObjects are claims and workloads of anna, bob and a professor.
func claimObjects() []client.Object {
	pod := &corev1.Pod{ObjectMeta: meta("x-0", statefulSets, ref("apps/v1", "StatefulSet", "x"))}
	pod.CreationTimestamp = metav1.NewTime(claimsStart)
	ephemeral := &corev1.Pod{ObjectMeta: meta("train-e", jobs, ref("batch/v1", "Job", "train"))}
	ephemeral.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	clone := newClaim("clone", anna, hers, time.Hour)
	clone.Spec = cloneOf("cloned-later")
	ended := mounting("ended", anna, "mounted-before")
	ended.Status.Phase = corev1.PodSucceeded
	deleted := newClaim("deleted", anna, hers, time.Hour)
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: claimsStart}, []string{"kubernetes.io/pvc-protection"}
	ofUnknown := mounting("waits-for-unknown", jobs, "unknown-later")
	ofUnknown.OwnerReferences = []metav1.OwnerReference{*ref("batch/v1", "Job", "deleted")}
	return append(objects(),
		clone, ended, ephemeral, deleted, ofUnknown, mounting("waits", anna, "later"), newSet("y-c", anna, nil, "a"), newSet("c", bob, nil, "a-y", "other"),
		newClaim("hers", anna, hers, time.Hour), newClaim("given", anna, shared, time.Hour),
		newClaim("odd", anna, map[string]string{v1alpha1.SharedClaimLabel: "maybe"}, time.Hour),
		newClaim("course", professor, nil, time.Hour), newClaim("unknown", "", nil, time.Hour),
		newClaim("data-x-0", professor, nil, time.Hour), newClaim("data-x-17", anna, hers, time.Hour), newClaim("data-x-y", anna, hers, time.Hour),
		newClaim("data-x-1", professor, nil, -time.Hour), newClaim("data-x-2", bob, nil, -time.Hour), newClaim("data-lws-0", professor, nil, time.Hour),
		newSet("x", bob, nil, "data"), newSet("b-c", anna, nil, "a"), newSet("p", professor, nil, "data"),
		newSet("lws", statefulSets, ref("batch/v1", "Job", "train"), "data"), newSet("old", "", nil, "data"),
		pod,
	)
}

// mounting returns a pod that waits for a node, and mounts a claim.
func mounting(name, by, claim string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta(name, by, nil), Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
	}}}
}

func cloneOf(name string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}}
}

func claimRequest(operation admissionv1.Operation, kind, user string, object any) admission.Request {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation, Namespace: ns, Kind: metav1.GroupVersionKind{Kind: kind}, Object: runtime.RawExtension{Raw: raw},
		UserInfo: authenticationv1.UserInfo{Username: user},
	}}
}

func newClaimReader(t *testing.T) *workload.ClaimReader {
	t.Helper()
	return &workload.ClaimReader{Creators: newResolver(t, interceptor.Funcs{}, claimObjects()...)}
}

// A new claim belongs to the user for whom it is created, and those of users who change only own objects to them alone. Guards invariant
// 4 of the design.
func TestNewClaims(t *testing.T) {
	m := &workload.ClaimMutator{Claims: newClaimReader(t), Rights: rights{}, Scans: evaluation.NewSlots(2)}
	for name, tc := range map[string]struct {
		user, claim     string
		groups          []string
		labels          map[string]string
		owner           *metav1.OwnerReference
		forged          string
		spec            corev1.PersistentVolumeClaimSpec
		creator, shared string
		refused         string
	}{
		"a student's":                                            {user: anna, creator: anna, shared: "false"},
		"a student's, shared":                                    {user: anna, labels: shared, creator: anna, shared: "true"},
		"a professor's":                                          {user: professor, creator: professor},
		"one of a group of professors":                           {user: anna, groups: []string{"professors"}, creator: anna},
		"a ServiceAccount's":                                     {user: account, creator: account},
		"with a forged creator":                                  {user: bob, forged: anna, creator: bob, shared: "false"},
		"with a forged owner":                                    {user: bob, owner: ref("batch/v1", "Job", "train"), creator: bob, shared: "false"},
		"of a pod":                                               {user: statefulSets, claim: "train-e-scratch", owner: ref("v1", "Pod", "train-e"), creator: anna, shared: "false"},
		"of a StatefulSet":                                       {user: statefulSets, claim: "data-x-7", creator: bob, shared: "false"},
		"of a StatefulSet with dashes":                           {user: statefulSets, claim: "a-b-c-0", creator: anna, shared: "false"},
		"of a professor's StatefulSet":                           {user: statefulSets, claim: "data-p-0", creator: professor},
		"of a controlled StatefulSet":                            {user: statefulSets, claim: "data-lws-1", creator: anna, shared: "false"},
		"of a StatefulSet of an unknown user":                    {user: statefulSets, claim: "data-old-0"},
		"of a StatefulSet without the template":                  {user: statefulSets, claim: "more-x-0"},
		"of no StatefulSet":                                      {user: statefulSets, claim: "data-gone-0"},
		"with a name of another's StatefulSet's":                 {user: anna, claim: "data-x-7", labels: shared, refused: "metadata.name: StatefulSet x of " + bob + " makes its own"},
		"of a StatefulSet whose template names an owner":         {user: statefulSets, claim: "data-x-7", owner: ref("v1", "Pod", "train-e"), forged: anna, creator: bob, shared: "false"},
		"of a deleted StatefulSet whose template names an owner": {user: statefulSets, claim: "data-gone-0", owner: ref("v1", "ConfigMap", "c"), forged: anna},
		"a data source administrator's":                          {user: dataAdmin, creator: dataAdmin},
		"with a name of her own StatefulSet's":                   {user: bob, claim: "data-x-7", creator: bob, shared: "false"},
		"with that name, a professor's":                          {user: professor, claim: "data-x-7", creator: professor},
		"of StatefulSets of two users":                           {user: statefulSets, claim: "a-y-c-0", refused: "metadata.name: StatefulSet c of " + bob + " makes its own"},
		"for which her own pod waits":                            {user: anna, claim: "later", creator: anna, shared: "false"},
		"for which another's pod waits":                          {user: bob, claim: "later", refused: "metadata.name: Pod waits of " + anna + " waits for volume claim later"},
		"for which another's pod waits, shared":                  {user: bob, claim: "later", labels: shared, creator: bob, shared: "true"},
		"for which another's pod waits, a professor's":           {user: professor, claim: "later", creator: professor},
		"for which a pod of an unknown user waits":               {user: bob, claim: "unknown-later", refused: "metadata.name: Pod waits-for-unknown of an unknown user waits"},
		"that another's clone waits for":                         {user: bob, claim: "cloned-later", refused: "metadata.name: PersistentVolumeClaim clone of " + anna + " waits"},
		"that another's ended pod mounted":                       {user: bob, claim: "mounted-before", creator: bob, shared: "false"},
		"a clone of her own":                                     {user: anna, spec: cloneOf("hers"), creator: anna, shared: "false"},
		"a clone of a shared one":                                {user: bob, spec: cloneOf("given"), creator: bob, shared: "false"},
		"a clone of another's":                                   {user: bob, spec: cloneOf("hers"), refused: "spec.dataSource: volume claim hers was created by " + anna},
		"a clone of another's for an unknown user":               {user: jobs, owner: ref("batch/v1", "Job", "deleted"), spec: cloneOf("hers"), refused: "spec.dataSource: volume claim hers"},
		"a clone of another's by reference": {
			user: bob, refused: "spec.dataSourceRef: volume claim hers was created by " + anna,
			spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "hers"}},
		},
		"from a snapshot": {user: bob, spec: corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "hers"}}, creator: bob, shared: "false"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta(tc.claim, tc.forged, tc.owner), Spec: tc.spec}
			claim.Labels = tc.labels
			req := claimRequest(admissionv1.Create, "PersistentVolumeClaim", tc.user, claim)
			req.UserInfo.Groups = tc.groups
			response := m.Handle(t.Context(), req)
			if tc.refused != "" {
				if response.Allowed || !strings.HasPrefix(response.Result.Message, tc.refused) {
					t.Errorf("allowed = %v: %+v", response.Allowed, response.Result)
				}
				return
			}
			if !response.Allowed {
				t.Fatalf("%+v", response.Result)
			}
			after := req.Object.Raw
			if len(response.Patch) > 0 {
				patch, err := jsonpatch.DecodePatch(response.Patch)
				if err != nil {
					t.Fatal(err)
				}
				if after, err = patch.Apply(after); err != nil {
					t.Fatal(err)
				}
			}
			var got metav1.PartialObjectMetadata
			if err := json.Unmarshal(after, &got); err != nil {
				t.Fatal(err)
			}
			if got.Annotations[v1alpha1.AnnotationCreatedBy] != tc.creator || got.Labels[v1alpha1.SharedClaimLabel] != tc.shared {
				t.Errorf("%v %v", got.Annotations, got.Labels)
			}
		})
	}
}

// A pod mounts its creator's claims and the shared ones. Guards invariant 4 of the design.
func TestClaimUse(t *testing.T) {
	v := &workload.PodCreatorValidator{Claims: newClaimReader(t)}
	for _, tc := range []struct {
		user, claim string
		owner       *metav1.OwnerReference
		refused     string
	}{
		{user: anna, claim: "hers"},
		{user: jobs, claim: "hers", owner: ref("batch/v1", "Job", "train")},
		{user: bob, claim: "given"},
		{user: bob, claim: "course"},
		{user: bob, claim: "unknown"},
		{user: bob, claim: "hers", refused: "volume claim hers was created by " + anna + ", and only that user's pods mount it; it is shared by its label: " +
			"kubectl label pvc hers -n work --overwrite sluice.dev/shared=true"},
		{user: bob, claim: "odd", refused: "volume claim odd was created by " + anna},
		{user: bob, claim: "hers", owner: ref("batch/v1", "Job", "train"), refused: "volume claim hers"}, // a forged owner
		{user: professor, claim: "hers", refused: "volume claim hers"},
		{user: jobs, claim: "hers", owner: ref("batch/v1", "Job", "deleted"), refused: "volume claim hers"},
		{user: anna, claim: "deleted", refused: "volume claim deleted is being deleted; create it again first"},
		{user: anna, claim: "missing", refused: "there is no volume claim missing; create the claim first"},
	} {
		pod := &corev1.Pod{ObjectMeta: meta("new", "", tc.owner), Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: tc.claim}}},
		}}}
		response := v.Handle(t.Context(), claimRequest(admissionv1.Create, "Pod", tc.user, pod))
		if response.Allowed != (tc.refused == "") || !response.Allowed && !strings.HasPrefix(response.Result.Message, "spec.volumes[1].persistentVolumeClaim.claimName: "+tc.refused) {
			t.Errorf("%s mounts %s: allowed = %v: %+v", tc.user, tc.claim, response.Allowed, response.Result)
		}
	}
}

// A StatefulSet deletes no claims of others with itself. Guards invariant 4 of the design.
func TestClaimRetention(t *testing.T) {
	v := &workload.ClaimRetentionValidator{Claims: newClaimReader(t)}
	for _, tc := range []struct {
		user    string
		set     *appsv1.StatefulSet
		refused string
	}{
		{bob, newSet("c", "", nil, "a-y"), "spec.volumeClaimTemplates[0].metadata.name: StatefulSet y-c of " + anna + " makes its own"},
		{bob, newSet("y", "", nil, "data"), ""},
		{bob, newSet("x", "", nil, "other"), ""},
		{bob, newSet("x", "", nil), ""},
		{bob, newSet("x", "", nil, "other", "data"), "data-x-0 (of " + professor + "), data-x-1 (of " + professor + "), data-x-17 (of " + anna + "); use Retain"},
		{professor, newSet("x", "", nil, "data"), "data-x-17 (of " + anna + "), data-x-2 (of " + bob + "); use Retain"},
		{jobs, newSet("lws", "", ref("batch/v1", "Job", "train"), "data"), "data-lws-0 (of " + professor + ")"},
	} {
		operations := []admissionv1.Operation{admissionv1.Create, admissionv1.Update}
		if strings.HasPrefix(tc.refused, "spec.") { // templates do not change
			operations = operations[:1]
		}
		for _, operation := range operations {
			response := v.Handle(t.Context(), claimRequest(operation, "StatefulSet", tc.user, tc.set))
			if response.Allowed != (tc.refused == "") || !response.Allowed && !strings.Contains(response.Result.Message, tc.refused) {
				t.Errorf("%s of %s by %s: allowed = %v: %+v", operation, tc.set.Name, tc.user, response.Allowed, response.Result)
			}
		}
	}
}

// No controller takes over a claim that its workload's author may not delete, and the API server asks only when one does: claims are
// bound and resized while the webhook is down. Guards invariants 2 and 4 of the design.
func TestClaimAdoption(t *testing.T) {
	v := &workload.AdoptionValidator{Cache: newResolver(t, interceptor.Funcs{}, claimObjects()...).Live, Creators: newResolver(t, interceptor.Funcs{}, claimObjects()...)}
	for _, tc := range []struct {
		claim, by string
		age       time.Duration
		owner     *metav1.OwnerReference
		refused   string
	}{
		{claim: "data-x-2", by: bob, age: -time.Hour, owner: ref("apps/v1", "StatefulSet", "x")},
		{claim: "data-x-2", by: bob, age: -time.Hour, owner: ref("v1", "Pod", "x-0")},
		{claim: "data-x-0", by: professor, age: time.Hour, owner: ref("apps/v1", "StatefulSet", "x")}, // judged when the set was created
		{claim: "data-x-1", by: professor, age: -time.Hour, owner: ref("apps/v1", "StatefulSet", "x"), refused: "created by " + professor + ", and no StatefulSet of " + bob},
		{claim: "data-x-1", by: professor, age: -time.Hour, owner: ref("v1", "Pod", "x-0"), refused: "and no Pod of " + bob},
		{claim: "data-x-1", by: professor, owner: ref("apps/v1", "StatefulSet", "x"), refused: "and no StatefulSet of " + bob}, // the same second
		{claim: "data-lws-0", by: professor, age: time.Hour, owner: ref("apps/v1", "StatefulSet", "lws"), refused: "and no StatefulSet of " + anna},
		{claim: "data-x-0", by: "", age: -time.Hour, owner: ref("apps/v1", "StatefulSet", "x"), refused: "created by an unknown user"},
		{claim: "data-old-0", by: "", age: -time.Hour, owner: ref("apps/v1", "StatefulSet", "old")},
		{claim: "data-old-0", by: bob, age: -time.Hour, owner: ref("apps/v1", "StatefulSet", "old"), refused: "no StatefulSet of an unknown user"},
	} {
		before, after := newClaim(tc.claim, tc.by, nil, tc.age), newClaim(tc.claim, tc.by, nil, tc.age)
		after.OwnerReferences = []metav1.OwnerReference{*tc.owner}
		req := claimRequest(admissionv1.Update, "PersistentVolumeClaim", statefulSets, after)
		req.OldObject = claimRequest(admissionv1.Update, "", "", before).Object
		response := v.Handle(t.Context(), req)
		if response.Allowed != (tc.refused == "") || !response.Allowed && (response.Result.Code != http.StatusForbidden || !strings.Contains(response.Result.Message, tc.refused)) {
			t.Errorf("%s of %s to %s %s: allowed = %v: %+v", tc.claim, tc.by, tc.owner.Kind, tc.owner.Name, response.Allowed, response.Result)
		}
	}
}

// Without an answer of the API server, no claim is created, mounted or taken over. Guards invariant 4 of the design.
func TestClaimsFailClosed(t *testing.T) {
	broken := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if key.Name == "x" || key.Name == "hers" {
				return context.DeadlineExceeded
			}
			return c.Get(ctx, key, object, options...)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return context.DeadlineExceeded
		},
	}
	creators := newResolver(t, broken, claimObjects()...)
	reader := &workload.ClaimReader{Creators: creators}
	pod := &corev1.Pod{ObjectMeta: meta("new", "", nil), Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "hers"}}},
	}}}
	adopted := claimRequest(admissionv1.Update, "PersistentVolumeClaim", statefulSets, &corev1.PersistentVolumeClaim{ObjectMeta: meta("data-x-0", anna, ref("apps/v1", "StatefulSet", "x"))})
	adopted.OldObject = claimRequest(admissionv1.Update, "", "", newClaim("data-x-0", anna, nil, 0)).Object
	for name, response := range map[string]admission.Response{
		"new":      (&workload.ClaimMutator{Claims: reader, Rights: rights{}, Scans: evaluation.NewSlots(2)}).Handle(t.Context(), claimRequest(admissionv1.Create, "PersistentVolumeClaim", statefulSets, newClaim("data-x-0", "", nil, 0))),
		"mounted":  (&workload.PodCreatorValidator{Claims: reader}).Handle(t.Context(), claimRequest(admissionv1.Create, "Pod", anna, pod)),
		"retained": (&workload.ClaimRetentionValidator{Claims: reader}).Handle(t.Context(), claimRequest(admissionv1.Create, "StatefulSet", anna, newSet("x", "", nil, "data"))),
		"adopted":  (&workload.AdoptionValidator{Cache: creators.Live, Creators: creators}).Handle(t.Context(), adopted),
	} {
		if response.Allowed || response.Result.Code != http.StatusInternalServerError {
			t.Errorf("%s: allowed = %v: %+v", name, response.Allowed, response.Result)
		}
	}
}
