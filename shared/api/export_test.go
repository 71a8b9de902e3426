package api

// Slugs lists the slugs of the problem table, each once, in its order.
func Slugs() []string {
	var slugs []string
	for _, row := range problems {
		if n := len(slugs); n == 0 || slugs[n-1] != row.slug {
			slugs = append(slugs, row.slug)
		}
	}
	return slugs
}
