// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// labelComponent and revisionComponent distinguish the revisions of policies from those that
// Kubernetes writes for StatefulSets and DaemonSets. An admission policy guards this label.
const (
	labelComponent    = "app.kubernetes.io/component"
	revisionComponent = "policy-revision"
)

// maxRevisionBytes limits what is decoded. No object of the API server is larger.
const maxRevisionBytes = 3 << 19

// maxRevisionsTried limits the revisions that are decoded for one policy. Lifecycle keeps one,
// and for a moment two.
const maxRevisionsTried = 4

// revisionData is what a ControllerRevision keeps of a policy.
type revisionData struct {
	// EngineVersion is the version of Sluice that compiled the source.
	EngineVersion string              `json:"engineVersion"`
	Spec          v1alpha1.PolicySpec `json:"spec"`
	// Libraries are those that the policy imports, itself and through others.
	Libraries []keptLibrary `json:"libraries,omitempty"`
}

// keptLibrary is a library as a revision keeps it.
type keptLibrary struct {
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	Rego       string `json:"rego"`
}

// RevisionLabels returns the labels of the revisions of policies.
func RevisionLabels() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBySluice, labelComponent: revisionComponent}
}

// RevisionCacheOptions limit a cache to the revisions of policies. Every manager with a Store
// needs them: without them it would watch the revisions of all namespaces.
func RevisionCacheOptions() (client.Object, cache.ByObject) {
	return &appsv1.ControllerRevision{}, cache.ByObject{
		Namespaces: map[string]cache.Config{v1alpha1.SystemNamespace: {}},
		Label:      labels.SelectorFromSet(RevisionLabels()),
		Transform:  cache.TransformStripManagedFields(),
	}
}

// NewRevision returns the revision that keeps the present source of a policy, with the libraries that it imports. The
// policy owns it, so that both are deleted together.
func NewRevision(policy *v1alpha1.Policy, libraries ...engine.Source) (*appsv1.ControllerRevision, error) {
	kept := revisionData{EngineVersion: config.Version, Spec: policy.Spec}
	for _, library := range libraries {
		kept.Libraries = append(kept.Libraries, keptLibrary{library.Name, library.Generation, library.Rego})
	}
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false) // Rego has many of these characters
	if err := encoder.Encode(kept); err != nil {
		return nil, fmt.Errorf("encode policy %s: %w", policy.Name, err)
	}
	owner := metav1.NewControllerRef(policy, v1alpha1.GroupVersion.WithKind("Policy"))
	owner.BlockOwnerDeletion = nil // that would need a right to the finalizers of the policy
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: revisionName(policy, libraries), Labels: RevisionLabels(),
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Data: runtime.RawExtension{Raw: bytes.TrimSpace(data.Bytes())}, Revision: policy.Generation,
	}, nil
}

// revisionName returns a name that differs by generation and libraries, since the data of a revision cannot
// be changed, and by UID, since the revision of a deleted policy may still exist.
func revisionName(policy *v1alpha1.Policy, libraries []engine.Source) string {
	const longestName = 200
	name := strings.TrimRight(policy.Name[:min(len(policy.Name), longestName)], "-.")
	uid, _, _ := strings.Cut(string(policy.UID), "-")
	if len(libraries) == 0 {
		return fmt.Sprintf("%s-%s-%d", name, uid, policy.Generation)
	}
	h := sha256.New()
	for _, library := range libraries {
		fmt.Fprintf(h, "%q %d %q\n", library.Name, library.Generation, library.Rego)
	}
	return fmt.Sprintf("%s-%s-%d-%x", name, uid, policy.Generation, h.Sum(nil)[:4])
}

// IsRevisionOf reports whether a policy owns a revision.
func IsRevisionOf(revision *appsv1.ControllerRevision, policy *v1alpha1.Policy) bool {
	owner := metav1.GetControllerOf(revision)
	return owner != nil && owner.UID == policy.UID && owner.Kind == "Policy" && owner.APIVersion == v1alpha1.GroupVersion.String()
}

// RevisionSource returns the source that a revision keeps for a policy.
func RevisionSource(revision *appsv1.ControllerRevision, policy *v1alpha1.Policy) (engine.Source, error) {
	switch raw := revision.Data.Raw; {
	case revision.Revision < 1 || revision.Revision > policy.Generation:
		return engine.Source{}, fmt.Errorf("its number is %d; generations from 1 to %d are known", revision.Revision, policy.Generation)
	case len(raw) > maxRevisionBytes:
		return engine.Source{}, fmt.Errorf("it has %d bytes; %d are allowed", len(raw), maxRevisionBytes)
	}
	var data revisionData
	if err := json.Unmarshal(revision.Data.Raw, &data); err != nil {
		return engine.Source{}, fmt.Errorf("decode its data: %w", err)
	}
	if data.Spec.Rego == "" {
		return engine.Source{}, errors.New("it has no source")
	}
	kept := v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: policy.Name, Generation: revision.Revision}, Spec: data.Spec}
	kept.CreationTimestamp = policy.CreationTimestamp
	source := engine.FromPolicy(&kept)
	for _, library := range data.Libraries {
		source.Libraries = append(source.Libraries, engine.Source{
			Name: library.Name, Type: v1alpha1.PolicyTypeLibrary, Generation: library.Generation, Rego: library.Rego,
		})
	}
	return source, nil
}

// lastGoodSources returns the last good sources of policies, by name, from the revisions of the
// cluster. It ignores and logs those that cannot be used. needed selects the policies.
func (s *Store) lastGoodSources(
	policies []v1alpha1.Policy, revisions []appsv1.ControllerRevision, needed func(name string) bool,
) map[string]engine.Source {
	byOwner := make(map[types.UID][]*appsv1.ControllerRevision)
	for i := range revisions {
		if owner := metav1.GetControllerOfNoCopy(&revisions[i]); owner != nil {
			byOwner[owner.UID] = append(byOwner[owner.UID], &revisions[i])
		}
	}
	found := make(map[string]engine.Source)
	ignored := make(map[types.UID]string)
	for i := range policies {
		policy := &policies[i]
		if !needed(policy.Name) {
			continue
		}
		candidates := byOwner[policy.UID]
		slices.SortFunc(candidates, func(a, b *appsv1.ControllerRevision) int {
			return cmp.Or(cmp.Compare(b.Revision, a.Revision), cmp.Compare(a.Name, b.Name))
		})
		for _, revision := range candidates[:min(len(candidates), maxRevisionsTried)] {
			source, err := engine.Source{}, errors.New("its owner is not the policy of this UID")
			if IsRevisionOf(revision, policy) {
				source, err = RevisionSource(revision, policy)
			}
			if err == nil {
				found[policy.Name] = source
				break
			}
			ignored[revision.UID] = revision.ResourceVersion
			if s.ignoredRevisions[revision.UID] != revision.ResourceVersion {
				s.Logger.Error(err, "Ignored revision of policy", "policy", policy.Name, "revision", revision.Name)
			}
		}
	}
	s.ignoredRevisions = ignored
	return found
}
