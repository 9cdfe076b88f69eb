// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// discover answers what can be asked of a server itself, and false for the rest.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	at := strings.Trim(r.URL.Path, "/")
	switch at {
	case "healthz", "livez", "readyz":
		_, _ = w.Write([]byte("ok"))
		return true
	case "version":
		send(w, http.StatusOK, version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0-stub"})
		return true
	case "api":
		send(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return true
	case "apis":
		send(w, http.StatusOK, s.groups())
		return true
	}
	parts := strings.Split(at, "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return s.resources(w, schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resources(w, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case len(parts) == 2 && parts[0] == "apis":
		for _, group := range s.groups().Groups {
			if group.Name == parts[1] {
				group.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}
				send(w, http.StatusOK, group)
				return true
			}
		}
	}
	return false
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	for _, kind := range s.kinds {
		gv := metav1.GroupVersionForDiscovery{GroupVersion: kind.GroupVersion().String(), Version: kind.Version}
		at := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == kind.Group })
		switch {
		case kind.Group == "":
		case at < 0:
			list.Groups = append(list.Groups, metav1.APIGroup{Name: kind.Group, Versions: []metav1.GroupVersionForDiscovery{gv}, PreferredVersion: gv})
		case !slices.Contains(list.Groups[at].Versions, gv):
			list.Groups[at].Versions = append(list.Groups[at].Versions, gv)
		}
	}
	return list
}

func (s *Server) resources(w http.ResponseWriter, of schema.GroupVersion) bool {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: of.String()}
	for _, kind := range s.kinds {
		if kind.GroupVersion() != of {
			continue
		}
		resource := metav1.APIResource{
			Name: kind.Resource, SingularName: strings.ToLower(kind.Kind), Namespaced: kind.Namespaced, Kind: kind.Kind,
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
		}
		list.APIResources = append(list.APIResources, resource)
		if kind.Status {
			resource.Name += "/status"
			resource.Verbs = metav1.Verbs{"get", "patch", "update"}
			list.APIResources = append(list.APIResources, resource)
		}
	}
	if len(list.APIResources) == 0 {
		return false
	}
	send(w, http.StatusOK, list)
	return true
}
