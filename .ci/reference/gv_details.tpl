{{- define "gvDetails" -}}
{{- $gv := . -}}
{{- if $gv.Kinds }}
The kinds of `{{ $gv.GroupVersionString }}`:
{{ range $gv.SortedKinds }}
- {{ $gv.TypeForKind . | markdownRenderTypeLink }}
{{- end }}
{{ end }}
{{- range $gv.SortedKinds }}
{{ template "type" ($gv.TypeForKind .) }}
{{- end }}
## Types of their fields
{{ range $gv.SortedTypes }}
{{- if not .GVK }}
{{ template "type" . }}
{{- end }}
{{- end }}
{{- end -}}
