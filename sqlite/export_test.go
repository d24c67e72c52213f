package sqlite

// Queries are what readers ask the file for.
func Queries() (sql []string) {
	for _, q := range (&reader{}).queries() {
		sql = append(sql, q.sql)
	}
	return sql
}
