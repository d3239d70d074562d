def page_of(report):
    return ""
